"""Makes recommendations: batches requests, reads histories, ranks, and falls back where a step fails."""
