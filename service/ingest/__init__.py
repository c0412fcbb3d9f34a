"""Parses POST /events into events."""
