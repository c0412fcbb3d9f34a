"""Who answers, and what becomes of a request: variants, candidates on trial, fallbacks, batches, explanations."""
