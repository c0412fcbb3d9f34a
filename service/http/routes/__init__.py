"""The HTTP routes, one file per kind of client."""
