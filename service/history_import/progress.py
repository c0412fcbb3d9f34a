"""How far a long piece of work is, for who waits for it: share, rate and time left."""

import time
from collections.abc import Callable
from typing import Final, TextIO

TERMINAL_EVERY_S: Final = 0.2
FILE_EVERY_S: Final = 10.0
"""How often a stream that is no terminal, such as a container's log, gets a line."""
WIDTH: Final = 24


class Progress:
    """A bar that is drawn over itself on a terminal, and lines elsewhere."""

    def __init__(self, what: str, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._stream = stream
        self._clock = clock
        self._on_terminal = stream.isatty()
        self._every_s = TERMINAL_EVERY_S if self._on_terminal else FILE_EVERY_S
        self._began_s = self._shown_s = clock()
        self._drawn = False

    def show(self, share: float, events: int) -> None:
        """Say which share of the work is done, 0 to 1, and how many events that were. Most calls draw nothing."""
        now_s = self._clock()
        if now_s - self._shown_s < self._every_s:
            return
        self._shown_s = now_s
        share = min(max(share, 0.0), 1.0)
        taken_s = now_s - self._began_s
        left = f", {describe_seconds(taken_s * (1 - share) / share)} left" if share > 0 else ""
        filled = round(share * WIDTH)
        line = (
            f"{self._what} [{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:3.0f} %  {events:,} events, "
            f"{events / taken_s:,.0f}/s{left}"
        )
        self._stream.write(f"\r{line}\x1b[K" if self._on_terminal else f"{line}\n")
        self._stream.flush()
        self._drawn = True

    def end(self) -> float:
        """Leave the bar. Returns the seconds since it began."""
        if self._drawn and self._on_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        return self._clock() - self._began_s


def describe_seconds(seconds: float) -> str:
    """A time as people say it: 8 s, 2 min 5 s, 1 h 2 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
