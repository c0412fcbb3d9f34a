"""From a run to a bundle, or to lists for every user."""
