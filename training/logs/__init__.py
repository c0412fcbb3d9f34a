"""Log files, archives and items files: how they are read into interactions."""
