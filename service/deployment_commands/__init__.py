"""`nextitem-serve models`: who answers, who is on trial, and what each worker serves."""
