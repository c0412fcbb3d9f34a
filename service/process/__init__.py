"""The worker processes: their start, their port, their watchdog and their supervisor."""
