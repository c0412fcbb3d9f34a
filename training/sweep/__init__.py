"""Many trials of a recipe: which values of its keys validate best."""
