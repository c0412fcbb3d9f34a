"""Promises under fire: no event lost, no memory grown, no overload that hurts."""
