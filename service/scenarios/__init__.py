"""Named defaults for POST /recommend, from the operator's file."""
