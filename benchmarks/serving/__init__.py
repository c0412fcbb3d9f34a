"""The service beside what people would use instead, on one machine in one run (docs/lab/serving-speed.md)."""
