"""When the log is archived: now and every so often, whatever went wrong the last time."""

import logging

import pytest

from service import archiving
from service.errors import StartFailed, StoreUnavailable
from service.settings import Settings


class Stop:
    """An event that is set after some waits; it keeps how long each was."""

    def __init__(self, waits):
        self.waits, self.left = [], waits

    def wait(self, seconds):
        """Whether to stop."""
        self.waits.append(seconds)
        return len(self.waits) == self.left


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (StoreUnavailable(), "The store did not answer"),
        (OSError(28, "No space left on device"), "cannot be written: No space left on device"),
        (StartFailed("another store's"), "another store's"),
        (KeyError(b"e"), "tries again in 7 minutes"),
    ],
)
def test_failure_is_logged_and_tried_again(monkeypatch, caplog, failure, said):
    """Of any kind, one that nobody thought of among them."""
    runs = []

    async def fail_once(*_):
        runs.append(1)
        if len(runs) == 1:
            raise failure

    monkeypatch.setattr(archiving, "archive_once", fail_once)
    stop = Stop(2)
    with caplog.at_level(logging.WARNING, "service.archiving"):
        archiving.archive_on("unix:///store", Settings(bundle="b", archive_minutes=7), None, stop)
    assert len(runs) == 2
    assert stop.waits == [420, 420]
    [record] = caplog.records
    assert said in record.getMessage()
