"""Metrics, logs, and the time of a request by stage."""
