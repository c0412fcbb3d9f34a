"""The live catalogue of a worker: what was changed since the bundle was made, and which items may be answered."""
