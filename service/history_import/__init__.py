"""`nextitem-serve import`: the events of a log file into histories."""
