"""The champion's next version: trained from where it is, held to it on the newest events, and put on trial."""
