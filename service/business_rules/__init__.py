"""Business rules over ranked items, whoever ranks: boosts, diversity, caps and pins."""
