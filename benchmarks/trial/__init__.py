"""How often the evidence of a trial errs, and how soon it sees what is there: simulated trials of paired events."""
