"""Authorization: the guard of each route, the API key file and its commands, and the audit log."""
