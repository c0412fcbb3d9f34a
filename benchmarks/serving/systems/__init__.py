"""What is served beside the service: a textbook handler, two frameworks with batching, and empty endpoints."""
