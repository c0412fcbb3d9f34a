"""Follows the deployment of a bundle folder: notices a change, tries the bundle in a process of its own, swaps."""
