"""Which items a request's filter allows: the filter read, checked against a model's columns, and made a mask."""
