"""The HTTP routes; each file is what one kind of client comes for."""
