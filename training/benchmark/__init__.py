"""Models x protocols x seeds on one log: what is missing is measured, and all that is there becomes a table."""
