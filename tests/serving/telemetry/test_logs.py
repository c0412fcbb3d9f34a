"""The log: one JSON object a line, whatever is logged."""

import io
import json
import logging
import sys

import pytest

from service.telemetry.logs import FaultLog, JsonLines, configure_logs


@pytest.fixture
def root_logger():
    """The root logger, left as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level


def test_lines_are_json_whatever_is_in_them(root_logger, monkeypatch):
    """Line ends and escapes in a message do not make another line; extra fields are members."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs("info")
    logging.getLogger("some.where").warning('two\nlines \x1b[31m "quoted"', extra={"fields": {"request_id": "r"}})
    logging.getLogger("some.where").debug("not at this level")
    [line] = written.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["message"] == 'two\nlines \x1b[31m "quoted"'
    assert (entry["level"], entry["logger"], entry["request_id"]) == ("warning", "some.where", "r")
    assert root_logger.level == logging.INFO


def test_a_fault_that_lasts_is_logged_once(caplog):
    """It is again when it turns into another, has another reason, or comes back after it was over."""
    faults = FaultLog(logging.getLogger("some.where"))
    told = [faults.report("no disk", why=why) for why in ("full", "full", "read-only", "full")]
    assert told == [True, False, True, True]
    assert [faults.report("no 100%s"), faults.report("no 100%s")] == [True, False]
    faults.clear()
    assert faults.report("no 100%s")
    said = [(record.getMessage(), getattr(record, "fields", None)) for record in caplog.records]
    why = [("no disk", {"why": reason}) for reason in ("full", "read-only", "full")]
    assert said == [*why, ("no 100%s", None), ("no 100%s", None)]


def test_exceptions_are_logged_without_their_text():
    """Type and frames tell where; the text may quote a client."""
    try:
        raise ZeroDivisionError("c4n4ry")  # noqa: TRY301 - to have a trace
    except ZeroDivisionError:
        record = logging.LogRecord("a", logging.ERROR, __file__, 1, "it broke", (), sys.exc_info())
    line = JsonLines().format(record)
    entry = json.loads(line)
    assert entry["exception"] == "ZeroDivisionError"
    assert "test_exceptions_are_logged_without_their_text" in entry["frames"][-1]
    assert "c4n4ry" not in line
