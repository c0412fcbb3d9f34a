"""What decides how a log is trained on and tested: its sizes, lengths, repeats, times, event types and items file."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from model.contract.event_logs.errors import LogError
from model.contract.event_logs.options import LogOptions
from model.contract.event_logs.stream import open_log
from training.data.describe import describe_log
from training.data.interactions import Log
from training.data.item_features import Metadata
from training.data.split import MIN_EVENTS, split_by_time
from training.errors import DataError

_LOOKED_AT = 10_000
"""Events at the head of a file in which types are looked for."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What was seen of a log."""

    name: str
    users: int
    items: int
    events: int
    shortest: int
    median_length: float
    ninetieth_length: int
    """Nine users of ten have no more events."""
    longest: int
    repeated_share: float
    """Of events, with an item that their user had met before."""
    first_day: str | None
    last_day: str | None
    """None where the log has no times."""
    asked_by_time: int
    """Users with an event before and one after the moment from which on a split by time tests."""
    asked_last: int
    """Users with enough events for leave-one-out."""
    event_types: Mapping[str, int]
    """How often each occurs at the head of the file; none where it names no types."""
    item_columns: tuple[str, ...]
    """What the items file says of items, if there is one."""


def look_at(log: Log, path: Path, metadata: Metadata | None, *, options: LogOptions, test_share: float) -> Traits:
    """Look at a log that was read from a file or folder, and at what is known of its items."""
    found: Mapping[str, Any] = describe_log(log)
    lengths = log.histories.lengths
    first, last = found["first_event_at"], found["last_event_at"]
    return Traits(
        name=path.name,
        users=len(log.user_ids),
        items=len(log.vocabulary),
        events=len(log.items),
        shortest=int(lengths.min()),
        median_length=float(np.median(lengths)),
        ninetieth_length=int(np.quantile(lengths, 0.9)),
        longest=int(lengths.max()),
        repeated_share=found["repeated_share"],
        first_day=None if first is None else first[:10],
        last_day=None if last is None else last[:10],
        asked_by_time=_count_asked_by_time(log, test_share),
        asked_last=int((lengths >= MIN_EVENTS).sum()),
        event_types=_find_event_types(path, options),
        item_columns=() if metadata is None else _list_columns(metadata),
    )


def _count_asked_by_time(log: Log, test_share: float) -> int:
    try:
        split = split_by_time(log, test_share)
    except DataError:
        return 0
    return min(len(split.test), len(split.validation))


def _find_event_types(path: Path, options: LogOptions) -> dict[str, int]:
    """The types at the head of a text file, most frequent first; none of a form that only the trainer reads."""
    if not path.is_file():
        return {}
    try:
        with open_log(path, options) as log:
            if "type" not in log.roles:
                return {}
            counts = Counter(event.type for event in islice(log, _LOOKED_AT) if event.type is not None)
    except LogError:
        return {}
    return dict(counts.most_common())


def _list_columns(metadata: Metadata) -> tuple[str, ...]:
    return tuple(dict.fromkeys(column for entry in metadata.values() for column in entry))
