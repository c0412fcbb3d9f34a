"""The log: one JSON object a line on stderr. No bodies, no user ids."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType


class JsonLines(logging.Formatter):
    """One record as one line of JSON; what is passed as `extra={"fields": {...}}` becomes members of the object."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
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
    """Type and frames only: the text of a foreign exception may quote what a client sent."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]
    return {"exception": kind.__qualname__ if kind else None, "frames": frames}


def configure_logs(level: str) -> None:
    """Send the whole process's log to stderr; of uvicorn's, warnings: the service says itself what it does."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(level.upper() if level == "debug" else max(logging.WARNING, root.level))
