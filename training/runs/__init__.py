"""A run on disk: its documents, its checkpoint, and later evaluation of it."""
