"""The operating system: memory limits, open files, and the parent-death signal."""
