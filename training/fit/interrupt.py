"""Ctrl-C as a flag that the loop checks between two steps."""

import signal
from types import FrameType, TracebackType

_ASKED_BY = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """While entered, the first SIGINT or SIGTERM only takes note; the second stops at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interrupt":
        for number in _ASKED_BY:
            self._before[number] = signal.signal(number, self._take_note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal gave is what it takes

    def is_asked(self) -> bool:
        """Whether a signal to stop has arrived."""
        return self.received is not None

    def _take_note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = number
