"""Accuracy beside published numbers."""
