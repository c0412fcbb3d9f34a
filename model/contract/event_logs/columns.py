"""Which column of a log holds what: found by the usual names, or named by `--columns`."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from model.contract.event_logs.errors import LogError

USER, ITEM, TIME, TYPE, VALUE = "user", "item", "time", "type", "value"
ROLES = (USER, ITEM, TIME, TYPE, VALUE)
"""What a column may hold."""

COLUMNS_HELP = "columns of the log, such as user=uid,item=sku,time=when (default: found by their usual names)"
"""What `--help` says of `--columns`."""

_NAMES: Mapping[str, Sequence[str]] = {
    USER: (
        "user",
        "userid uid memberid customer customerid clientid accountid reviewerid visitor visitorid",
        "session sessionid usersession",
    ),
    ITEM: (
        "item",
        "itemid iid product productid movie movieid film filmid asin parentasin sku article articleid track trackid "
        "song songid book bookid isbn game gameid video videoid news newsid content contentid",
    ),
    TIME: (
        "timestamp",
        "time ts date datetime eventtime eventdate unixtime unixreviewtime timestampms createdat occurredat",
    ),
    TYPE: ("type", "event eventtype eventname behavior behaviour behaviortype action actiontype"),
    VALUE: ("value", "rating score stars overall quantity qty price amount"),
}
"""The usual names by role, as `_fold` writes them. A name of an earlier group wins over those of later ones."""

_SHOWN, _SHOWN_LENGTH = 20, 40


def read_columns(text: str) -> dict[str, str]:
    """Read the value of `--columns`: role=column,role=column. `time=` says that there are none. Raises ValueError."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, equals, column = part.partition("=")
        role = TIME if role.strip() == "timestamp" else role.strip()
        if not equals or role not in ROLES or role in columns or not (column or role in (TIME, TYPE, VALUE)):
            raise ValueError(
                f"columns are given as user=COLUMN,item=COLUMN,time=COLUMN, each of {', '.join(ROLES)} once"
            )
        columns[role] = column
    return columns


def find_columns(
    path: Path, names: Sequence[str], given: Mapping[str, str], required: Collection[str] = (USER, ITEM, TIME)
) -> dict[str, str]:
    """The column of each role, of those that are not required only where one is found without doubt.

    `given` names columns by role; an empty one says that there is none. Raises LogError, once for all that is wrong,
    with the option to paste.
    """
    found: dict[str, str] = {}
    missing: list[str] = []
    doubtful: list[str] = []
    options: list[str] = []
    for role in ROLES:
        name = given.get(role)
        if name == "":
            continue
        choices = _list_choices(names, role) if name is None else [each for each in names if each == name]
        if len(choices) == 1:
            found[role] = choices[0]
        elif choices and (role in required or role in given):
            doubtful.append(f"{len(choices)} columns that may be the {role} ({_list_names(choices)})")
            options.append(f"{role}={choices[0]}")
        elif role in required or role in given:
            missing.append(role if name is None else f"{role} ({_cut(name)})")
            options.append(f"{role}=COLUMN")
    if options:
        faults = [f"no column for {' and '.join(missing)}"] * bool(missing) + doubtful
        raise LogError(f"{path} has {' and '.join(faults)}: {_describe_columns(names)}. {_suggest(options)}")
    return found


def _list_choices(names: Sequence[str], role: str) -> list[str]:
    """The columns that may be meant."""
    own, *groups = _NAMES[role]
    for choices in (
        [name for name in names if name == own],
        *([name for name in names if _fold(name) in group.split()] for group in (own, *groups)),
    ):
        if choices:
            return choices
    return []


def _describe_columns(names: Sequence[str]) -> str:
    if names and names == tuple(map(str, range(1, len(names) + 1))):
        return f"it has no header, so its columns are numbered 1 to {len(names)}"
    return f"its columns are {_list_names(names)}"


def _suggest(options: Sequence[str]) -> str:
    free = "; time= says that there are no times" if any(option.startswith("time=") for option in options) else ""
    return f"Say which: --columns {shlex.quote(','.join(options))}{free}"


def _fold(name: str) -> str:
    """A name without case, underscores, blanks and the like."""
    return re.sub(r"[\W_]", "", name.lower())


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(_cut, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _cut(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_LENGTH else f"{name[:_SHOWN_LENGTH]}...")
