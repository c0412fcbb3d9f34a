"""Finding items by title or id, for GET /items."""
