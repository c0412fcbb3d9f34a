"""The command line of `nextitem-serve import`, but for what is a setting."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from model.contract.event_logs.columns import COLUMNS_HELP, read_columns
from model.contract.event_logs.options import CHOICES, LogOptions
from service.api.timestamps import parse_rfc_3339
from service.history_import.rules import check_types

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What to import, and how. Times are in milliseconds since 1970."""

    log: Path
    columns: dict[str, str]
    format: str
    time_zone: str
    time_unit: str
    ids: str
    missing_ids: str
    types: tuple[str, ...]
    min_value: float | None
    before: int | None
    limit: int | None
    skip_bad: bool
    with_log: bool
    dry_run: bool

    @property
    def reading(self) -> LogOptions:
        """How to read the log. Raises LogError."""
        return LogOptions(
            format=self.format,
            columns=self.columns,
            time_zone=self.time_zone,
            time_unit=self.time_unit,
            ids=self.ids,
            missing_ids=self.missing_ids,
        )


NAMES = tuple(field.name for field in fields(ImportOptions))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options to the parser of the command."""
    defaults = LogOptions()
    parser.add_argument("log", type=Path, metavar="LOG", help="CSV, TSV or JSON lines, also .gz: user, item and time")
    parser.add_argument("--columns", type=_refuse_by(read_columns), default={}, metavar="COLUMNS", help=COLUMNS_HELP)
    for name, says in {
        "format": "format of the log",
        "time_unit": "unit of times that are numbers",
        "ids": "how ids are written that are not printable ASCII without spaces: refused, or percent-encoded; as the "
        "model was trained",
        "missing_ids": "what to do with events without user or item",
    }.items():
        default = getattr(defaults, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            choices=CHOICES[name],
            default=default,
            metavar="|".join(CHOICES[name]),
            help=f"{says} (default: {default})",
        )
    parser.add_argument(
        "--time-zone", default=defaults.time_zone, metavar="ZONE", help="zone of times that name none (default: UTC)"
    )
    parser.add_argument(
        "--types",
        type=_refuse_by(_read_types),
        default=(),
        metavar="TYPES",
        help="import events of these types alone, separated by commas",
    )
    parser.add_argument("--min-value", type=float, metavar="VALUE", help="import events of this value or more alone")
    parser.add_argument(
        "--before",
        type=_refuse_by(_read_time),
        metavar="TIME",
        help="import events from before this time alone, such as 2026-11-01T00:00:00Z, when the service took over",
    )
    parser.add_argument("--limit", type=_refuse_by(_read_count), metavar="N", help="read the first N events alone")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad rows out; without it nothing is imported")
    parser.add_argument(
        "--with-log",
        action="store_true",
        help="write all events into the service's log, too, for its archive and trainings on it",
    )
    parser.add_argument("--dry-run", action="store_true", help="read and count; no store is needed or changed")


def _refuse_by(read: Callable[[str], T]) -> Callable[[str], T]:
    """A reader of an option's value whose ValueError says what is wrong."""

    def read_value(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read_value


def _read_types(text: str) -> tuple[str, ...]:
    types = tuple(part.strip() for part in text.split(","))
    check_types(types)
    return types


def _read_time(text: str) -> int:
    try:
        return parse_rfc_3339(text)
    except ValueError as error:
        raise ValueError("give a time with its zone, such as 2026-11-01T00:00:00Z") from error


def _read_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("give a number from 1 on")
    return int(text)
