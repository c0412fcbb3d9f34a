"""How a network learns: batches, masks, negatives, losses, optimizer, loop."""
