"""The demo is a customer: it runs the two commands and speaks HTTP, and imports none of the rooms."""
