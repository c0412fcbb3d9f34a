"""Models that count: no training, no weights, scores from what the log holds."""
