"""Statistics of a log: Table 1 of the BERT4Rec paper, and the properties that decide how to split and measure it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from training.data.interactions import Log


def describe_log(log: Log) -> dict[str, int | float | str | tuple[str, ...] | None]:
    """Counts, lengths, repeats and ties of a log with events."""
    lengths = log.histories.lengths
    users, items, actions = len(lengths), len(log.vocabulary), len(log.items)
    owners, indexes = log.histories.flatten()
    pairs = len(np.unique(owners * (items + 1) + indexes))
    return {
        "users": users,
        "items": items,
        "actions": actions,
        "average_length": actions / users,
        "density": actions / users / items,
        "shortest": int(lengths.min()),
        "median_length": float(np.median(lengths)),
        "longest": int(lengths.max()),
        "repeated_share": 1 - pairs / actions,
        **_describe_times(log),
        "read_as": log.read_as,
        "warnings": log.warnings,
    }


def _describe_times(log: Log) -> dict[str, float | str | None]:
    """First and last event, and how often the order of the file decides because two events of a user share a time."""
    if log.timestamps_ms is None:
        return {"first_event_at": None, "last_event_at": None, "tied_share": None, "users_with_tied_last": None}
    times = log.timestamps_ms
    owners = np.repeat(np.arange(len(log.user_ids)), log.histories.lengths)
    same = (times[1:] == times[:-1]) & (owners[1:] == owners[:-1])
    tied = np.append(same, False) | np.insert(same, 0, False)
    last = log.offsets[1:][log.histories.lengths > 0] - 1
    first = datetime.fromtimestamp(int(times.min()) // 1000, tz=UTC)
    return {
        "first_event_at": f"{first:%Y-%m-%dT%H:%M:%SZ}",
        "last_event_at": log.last_event_at,
        "tied_share": float(tied.mean()),
        "users_with_tied_last": float(tied[last].mean()),
    }


def format_statistics(name: str, found: Mapping[str, Any]) -> str:
    """The statistics as text: the paper's table of one row, and the other properties below it."""
    head = ("data", "users", "items", "actions", "avg. length", "density")
    row = (
        name,
        *(f"{found[key]:,}" for key in ("users", "items", "actions")),
        f"{found['average_length']:.1f}",
        f"{found['density']:.2%}",
    )
    widths = [max(len(title), len(cell)) for title, cell in zip(head, row, strict=True)]
    table = [
        "  ".join(f"{cell:>{width}}" if column else f"{cell:<{width}}" for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(line, widths, strict=True)) for line in (head, row))
    ]
    lengths = f"lengths {found['shortest']:,} to {found['longest']:,}, median {found['median_length']:g}"
    repeats = f"{found['repeated_share']:.1%} of the actions repeat an item of the same user"
    if found["first_event_at"] is None:
        times = "no times: the order of the file counts"
    else:
        times = (
            f"{found['first_event_at']} to {found['last_event_at']}; {found['tied_share']:.1%} of the actions share "
            f"their time with another of the same user, the last one for {found['users_with_tied_last']:.1%} of the "
            "users: there the order of the file decides"
        )
    warnings = [f"WARNING: {warning}" for warning in found["warnings"]]
    return "\n".join([*table, "", f"read as {found['read_as']}", lengths, repeats, times, *warnings])
