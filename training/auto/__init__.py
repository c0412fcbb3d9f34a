"""`fit` without a recipe: looks at a log, chooses, says why, keeps to the minutes, and ends with a verdict."""
