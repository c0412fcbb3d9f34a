"""The arguments of nextitem-train. Nothing in here imports anything heavy, so that --help is instant."""
