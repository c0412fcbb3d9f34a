"""Memory and answers under hours of traffic, beside a service that leaks."""
