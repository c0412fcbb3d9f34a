"""One model's answers: batches of requests are read, encoded, ranked and answered, by what is at hand."""
