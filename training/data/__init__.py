"""From files to histories: readers, filters, splits, features, and the data sets that can be fetched."""
