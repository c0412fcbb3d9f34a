"""What the service may see of a model: numpy and the standard library only."""
