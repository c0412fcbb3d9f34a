"""The form of a log file: told from its name and its first lines."""

import csv
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from model.contract.event_logs.columns import ITEM, TIME, USER, find_columns
from model.contract.event_logs.errors import LogError
from model.contract.event_logs.times import is_number

CSV, JSON_LINES, PAIRS, PARQUET = "csv", "jsonl", "lines", "parquet"
FORMATS = ("auto", CSV, "tsv", JSON_LINES, PAIRS, PARQUET)
"""What `--format` takes. tsv is csv that is separated by tabs."""

HEAD_BYTES = 64 * 1024
"""So much of a file is looked at to tell its form."""

_KINDS = {
    ".csv": CSV,
    ".tsv": "tsv",
    ".dat": CSV,
    ".jsonl": JSON_LINES,
    ".ndjson": JSON_LINES,
    ".json": JSON_LINES,
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".txt": PAIRS,
}
_PACKED = (".gz", ".zst")
_SEPARATORS = (",", "\t", ";", "|", "::")
_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", "::": "double colons"}
_GZIP, _WIDE = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
_LOOKED_AT = 50  # lines

UNIT = "\x1f"
"""What stands for a separator of two characters while a table is read: readers want one."""


@dataclass(frozen=True)
class Form:
    """The form of one file."""

    kind: str
    """CSV, JSON_LINES, PAIRS or PARQUET."""
    names: tuple[str, ...] = ()
    """The columns, in the order of the file; of JSON lines those of the first ones."""
    separator: str = ""
    has_header: bool = True
    """Without one, columns are named 1, 2, 3, ..."""

    @property
    def description(self) -> str:
        """The form in words."""
        if self.kind != CSV:
            return {JSON_LINES: "JSON lines", PAIRS: "lines of user and item", PARQUET: "Parquet"}[self.kind]
        return f"text separated by {_NAMES[self.separator]}{'' if self.has_header else ', without a header'}"

    @property
    def delimiter(self) -> str:
        """The separator as one character: `join` puts it in."""
        return UNIT if len(self.separator) > 1 else self.separator

    def join(self, text: bytes) -> bytes:
        """The text with separators of one character."""
        return text.replace(self.separator.encode(), UNIT.encode()) if len(self.separator) > 1 else text


def describe_reading(form: Form, roles: Mapping[str, str], times: str | None) -> str:
    """How a file is read, in one line: its form, the column of each role, and its times."""
    said = {TIME: f" ({times})"} if times else {}
    columns = ", ".join(f"{role} = {column}{said.get(role, '')}" for role, column in roles.items())
    return f"{form.description}; {columns}"


def name_kind(path: Path, asked: str) -> str:
    """The format by the option or the file's name. Raises LogError where neither tells."""
    if asked != "auto":
        return asked
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _PACKED]
    if not suffixes or suffixes[-1] not in _KINDS:
        known = ", ".join(_KINDS)
        raise LogError(
            f"{path}: the file name does not tell the format ({known}, also .gz): say it, "
            f"--format {'|'.join(FORMATS[1:])}"
        )
    return _KINDS[suffixes[-1]]


def open_bytes(path: Path) -> tuple[BinaryIO, BinaryIO]:
    """The file's content, unpacked, and the file itself, whose position says how far the reading is. OSError."""
    file = path.open("rb")
    packed = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    return (cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file), file


def find_form(path: Path, kind: str, head: bytes) -> Form:
    """The form of a text file that begins with `head`. Raises LogError."""
    if head.startswith(_WIDE) or b"\x00" in head[:64]:
        raise LogError(f"{path} is not UTF-8 text: save it as UTF-8")
    whole = len(head) < HEAD_BYTES
    text = head.decode("utf-8-sig", errors="replace")
    lines = text.splitlines() if whole else text[: text.rfind("\n") + 1].splitlines() or [text]
    lines = [line for line in lines if line.strip()][:_LOOKED_AT]
    if not lines:
        raise LogError(f"{path} is empty")
    if kind == JSON_LINES:
        return Form(kind, _find_keys(path, lines))
    separator = "\t" if kind == "tsv" else _find_separator(lines, or_else=",")
    names = _split(lines[:1], separator)[0]
    if kind == PAIRS and not (separator == "::" or _names_columns(path, names)):
        return Form(PAIRS, (USER, ITEM))
    if any(is_number(name) for name in names):  # no header has numbers
        return Form(CSV, tuple(str(number) for number in range(1, len(names) + 1)), separator, has_header=False)
    return Form(CSV, tuple(names), separator)


def _find_separator(lines: Sequence[str], *, or_else: str) -> str:
    """The separator by which most lines have as many fields as the first one, and then the one with most fields."""
    best, score = or_else, (0.0, 0)
    for separator in _SEPARATORS:
        widths = [len(row) for row in _split(lines, separator)]
        if widths and widths[0] > 1:
            even = sum(width == widths[0] for width in widths) / len(widths)
            if (even, widths[0]) > score:
                best, score = separator, (even, widths[0])
    return best


def _split(lines: Iterable[str], separator: str) -> list[list[str]]:
    delimiter = UNIT if len(separator) > 1 else separator
    texts = (line.replace(separator, delimiter) for line in lines)
    try:
        return [row for row in csv.reader(texts, delimiter=delimiter) if row]
    except csv.Error:  # a field beyond every bound
        return [line.split(separator) for line in lines]


def _names_columns(path: Path, names: Sequence[str]) -> bool:
    """Whether a line of a .txt file is a header: pairs of user and item have none."""
    if len(names) < 2:
        return False
    try:
        find_columns(path, names, {}, (USER, ITEM))
    except LogError:
        return False
    return True


def _find_keys(path: Path, lines: Sequence[str]) -> tuple[str, ...]:
    """All keys of the first lines."""
    if re.match(r"\s*\[", lines[0]):
        raise LogError(f"{path} is one JSON list: write one object a line, as `jq -c '.[]'` does")
    keys: dict[str, None] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue  # whoever reads that line says where it is
        if isinstance(entry, dict):
            keys.update(dict.fromkeys(entry))
    if not keys:
        raise LogError(f"{path} holds no JSON lines: write one object a line")
    return tuple(keys)
