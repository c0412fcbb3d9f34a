"""A report of a run for people: one HTML file with pictures, and the numbers that they show."""
