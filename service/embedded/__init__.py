"""The embedded store: a Valkey server that the service starts itself."""
