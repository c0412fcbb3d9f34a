"""Count-based baselines: popularity, chains, neighbours and sequential rules."""
