"""Business rules over ranked items, whoever ranks: diversity, caps and pins."""
