"""Networks in PyTorch, one page each: the config dataclass, the shapes and the paper."""
