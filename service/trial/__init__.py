"""Whether a candidate is better than the champion: evidence, guardrails, the state of a trial, and its verdicts."""
