"""From interactions to histories: splits and features, and the data sets that can be fetched."""
