"""Event logs in files, as people bring them: form, columns, times and ids, by the same rules at both ends."""
