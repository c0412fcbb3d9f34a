"""What a log looks like to who wants to train on it: how it was read, what was left out, and what may be wrong."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from training.data.interactions import Log
from training.logs.ids import VALID, LeftOut

ROBOT_EVENTS, ROBOT_TIMES = 1000, 200
"""A user may be a robot who has more events than both this and so many times the median of all users."""

_announced: set[str] = set()


def announce_reading(path: Path, log: Log) -> None:
    """Print on stderr how a log was read and what may be wrong with it, each once a process and on one process only."""
    if os.environ.get("RANK", "0") != "0":
        return
    lines = [f"{path}: {log.read_as}", *(f"WARNING: {path}: {warning}" for warning in log.warnings)]
    for line in lines:
        if line not in _announced:
            _announced.add(line)
            sys.stderr.write(f"nextitem-train: {line}\n")


def describe_left_out(left: LeftOut) -> str:
    """Events without ids."""
    return (
        f"{_share(left.events, left.of, 'events')} lack an id ({left.users:,} the user, {left.items:,} the item, the "
        f"first in {left.first}) and are left out; --missing-ids refuse stops there, keep takes texts such as NaN for "
        "ids"
    )


def find_warnings(log: Log) -> list[str]:
    """What may be wrong with the events that were kept."""
    warnings = (_count_duplicates(log), _count_robots(log), _count_rare_items(log), _count_foreign_users(log))
    return [warning for warning in warnings if warning]


def _count_duplicates(log: Log) -> str | None:
    """Events that another one equals in user, item, time and whatever else was read."""
    if log.timestamps_ms is None or len(log.items) < 2:
        return None
    owners = np.repeat(np.arange(len(log.user_ids)), log.histories.lengths)
    same = (np.diff(log.timestamps_ms) == 0) & (np.diff(owners) == 0)
    tied = np.append(same, False) | np.insert(same, 0, False)
    columns: dict[str, NDArray[Any] | None] = {
        "user": owners,
        "time": log.timestamps_ms,
        "item": log.items,
        "type": log.types,
        "value": log.values,
    }
    events = pl.DataFrame({name: values[tied] for name, values in columns.items() if values is not None})
    count = len(events) - (events.n_unique() if len(events) else 0)
    if not count:
        return None
    return (
        f"{_share(count, len(log.items), 'events')} repeat another one exactly (user, item and time) and are kept; "
        "--set data.duplicates=drop keeps the first of each"
    )


def _count_robots(log: Log) -> str | None:
    lengths = log.histories.lengths
    most = max(ROBOT_EVENTS, ROBOT_TIMES * float(np.median(lengths)))
    robots = lengths[lengths > most]
    if not len(robots):
        return None
    events = _share(int(robots.sum()), len(log.items), "events")
    return (
        f"{_share(len(robots), len(lengths), 'users')} may be robots, with {events}, one with {int(robots.max()):,}: "
        f"each has more than {most:,.0f}, the larger of {ROBOT_EVENTS:,} and {ROBOT_TIMES} times the median. They are "
        f"kept; --set data.max_user_events={most:.0f} leaves them out"
    )


def _count_rare_items(log: Log) -> str | None:
    once = int((np.bincount(log.items, minlength=len(log.vocabulary) + 1)[1:] == 1).sum())
    if not once:
        return None
    return (
        f"{_share(once, len(log.vocabulary), 'items')} occur in one event only and are kept; "
        "--set data.min_item_events=2 leaves them out"
    )


def _count_foreign_users(log: Log) -> str | None:
    count = int((~pl.Series(log.user_ids, dtype=pl.String).str.contains(VALID)).sum())
    if not count:
        return None
    return (
        f"{_share(count, len(log.user_ids), 'users')} have ids that the service refuses (spaces, characters beyond "
        "ASCII, or too long) and are kept; --ids percent encodes them"
    )


def _share(count: int, total: int, noun: str) -> str:
    return f"{count:,} of {total:,} {noun} ({count / total:.1%})"
