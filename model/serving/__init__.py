"""The answer of a trained network at less cost: what is exported. Equal to it, in another order of sums."""
