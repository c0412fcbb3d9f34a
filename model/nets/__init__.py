"""Networks in PyTorch, one page each: the shapes and the paper. Their configs are torch-free (configs.py)."""
