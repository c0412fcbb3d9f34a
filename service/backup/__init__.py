"""Check, back up and restore the embedded store with its archive."""
