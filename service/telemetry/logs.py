"""The log: one JSON object a line on stderr. No bodies, no user ids."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON. `extra={"fields": {...}}` adds members to the object."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its line end."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            kind, _, trace = record.exc_info
            entry |= _describe_exception(kind, trace)
        return json.dumps(entry)


def _describe_exception(kind: type[BaseException] | None, trace: TracebackType | None) -> dict[str, object]:
    """Type and frames only: an exception's text may quote client input."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]
    return {"exception": kind.__qualname__ if kind else None, "frames": frames}


class FaultLog:
    """Logs a fault that lasts once: when it begins, and again when it turns into another."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last: tuple[str, str | None] | None = None

    def report(self, sentence: str, *, why: str | None = None) -> bool:
        """Log an error, with its reason as a field, unless it was the last one. Returns whether it was logged."""
        is_news = (sentence, why) != self._last
        if is_news:
            self._log.error("%s", sentence, extra=None if why is None else {"fields": {"why": why}})
        self._last = (sentence, why)
        return is_news

    def clear(self) -> None:
        """It is over: whatever comes next is news."""
        self._last = None


def configure_logs(level: str) -> None:
    """Send the process's log to stderr. Of uvicorn's and asyncio's messages only warnings and above."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(level.upper() if level == "debug" else max(logging.WARNING, root.level))
