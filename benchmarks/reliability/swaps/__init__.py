"""Models swapped and refused under load, and whether anybody notices."""
