"""Reads a log file: every row is looked at before the first is imported."""

from pathlib import Path
from typing import Final

from model.contract.event_logs.errors import LogError
from model.contract.event_logs.stream import EventLog, open_log
from service.history_import.options import ImportOptions
from service.history_import.progress import Progress
from service.history_import.report import Report
from service.history_import.rules import Rules
from service.history_import.spill import Spill
from service.settings import DEFAULT_TYPE

UNPACKED: Final = 8
"""How many times as large a packed log is unpacked, about."""
_GZIP: Final = b"\x1f\x8b"
_SHOW_EVERY: Final = 4096
"""Events between looks at the clock."""


class LogFile:
    """The log of an import, opened. Use it as a context. Bad rows and events without ids are counted in `report`."""

    def __init__(self, options: ImportOptions, rules: Rules, report: Report) -> None:
        """Open the log. Raises LogError."""
        self._options = options
        self._rules = rules
        self._report = report
        self._log: EventLog = open_log(options.log, options.reading, on_bad=self._note_bad)
        self.description = f"{options.log}: {self._log.description}"

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    @property
    def expected_bytes(self) -> int:
        """What the log holds, unpacked, about."""
        return self._log.total_bytes * (UNPACKED if _is_packed(self._options.log) else 1)

    def read_into(self, spill: Spill, progress: Progress) -> None:
        """Put the wanted events into a spill. Raises LogError, and OSError where there is no room for them."""
        log, rules, report = self._log, self._rules, self._report
        limit = self._options.limit
        for line, user_id, item_id, timestamp_ms, event_type, value in log:
            if timestamp_ms is None:
                raise LogError(f"{self._options.log} has no times, without which histories have no order")
            report.read += 1
            kind = event_type or DEFAULT_TYPE
            try:
                if rules.take(timestamp_ms, kind, value):
                    spill.add(user_id, timestamp_ms, item_id, kind, value)
            except ValueError as fault:
                report.read -= 1
                self._note_bad(LogError(f"{self._options.log}, line {line}: {fault}"))
            if report.read % _SHOW_EVERY == 0:
                progress.show(log.read_bytes / max(1, log.total_bytes), report.read)
            if report.read == limit:
                break
        report.fates["missing"], report.first_missing = log.skipped, log.first_skipped
        for reason, count in rules.left_out.items():
            report.fates[reason] = count

    def _note_bad(self, error: LogError) -> None:
        self._report.note_bad(str(error))


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_GZIP)) == _GZIP
