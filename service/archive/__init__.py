"""The archive: moves the store's event log to files, and erases users from both."""
