"""How soon each trainer's network is good: NDCG@10 over CPU seconds (docs/lab/training-speed.md)."""
