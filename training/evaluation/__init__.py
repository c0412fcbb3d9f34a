"""Ranks, metrics, protocols and intervals: how good lists are, and how sure that is."""
