"""What a benchmark tells whoever waits for it."""


def say(line: str) -> None:
    """Print a line at once: progress, or a result."""
    print(line, flush=True)  # noqa: T201 - for people
