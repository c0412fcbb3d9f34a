"""The options that say which log to read and how; each is a key of [data] under a shorter name."""

import argparse
import json
from pathlib import Path

from model.contract.event_logs.columns import COLUMNS_HELP, read_columns
from model.contract.event_logs.form import FORMATS
from model.contract.event_logs.ids import ID_WRITINGS, MISSING_RULES
from model.contract.event_logs.times import TIME_UNITS

_COLUMN_KEYS = {
    "user": "user_column",
    "item": "item_column",
    "time": "timestamp_column",
    "type": "type_column",
    "value": "value_column",
}


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --data and the options beside it, which end up in `settings` as --set does, in their order."""
    parser.set_defaults(settings=[])
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="FILE",
        help="interaction log: CSV, TSV, JSON lines, Parquet, .txt with `user item` lines, or the archive folder of a "
        "service",
    )
    parser.add_argument(
        "--columns", action="extend", dest="settings", type=_set_columns, metavar="ROLE=NAME,...", help=COLUMNS_HELP
    )
    for option, metavar, text in (
        ("--time-zone", "ZONE", "zone of times that name none, such as Europe/Berlin (default: UTC)"),
        ("--time-unit", "|".join(TIME_UNITS), "unit of times that are numbers (default: auto, by their size)"),
        ("--ids", "|".join(ID_WRITINGS), "percent encodes ids with spaces or characters beyond ASCII (default: plain)"),
        ("--missing-ids", "|".join(MISSING_RULES), "events without a user or an item (default: skip)"),
        ("--format", "|".join(FORMATS), "format of the log (default: auto, by the file's name)"),
    ):
        key = option.removeprefix("--").replace("-", "_")
        parser.add_argument(
            option, action="append", dest="settings", type=_Setting(f"data.{key}"), metavar=metavar, help=text
        )
    parser.add_argument(
        "--set",
        action="append",
        dest="settings",
        metavar="SECTION.KEY=VALUE",
        help="override a key of the recipe",
    )


class _Setting:
    """Reads a value as the setting of a key."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, text: str) -> str:
        return f"{self._key}={json.dumps(text, ensure_ascii=False)}"


def _set_columns(text: str) -> list[str]:
    try:
        columns = read_columns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return [_Setting(f"data.{_COLUMN_KEYS[role]}")(name) for role, name in columns.items()]
