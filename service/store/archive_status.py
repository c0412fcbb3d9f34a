"""The archiver's status in the store, for metrics and health checks.

The archiver may run on another machine, so it records its status in one hash of the store, `nextitem:archive`: the
folder that the log goes to, the time of the last successful run, and the failures since. A status that is not renewed
is itself the alarm.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from service.store.multiplexer import Command
from service.store.redis_keys import PARTITIONS, tag_partition

Failure = Literal["connection", "timeout", "refused", "data", "folder", "segment", "disk", "other"]
FAILURES: Final[tuple[Failure, ...]] = get_args(Failure)
"""Why a run failed: no connection, no answer in time, a server that will not (no permission, read-only), keys that hold
something else, a folder of another store, a damaged segment, a disk that is full, a bug."""

FOLDER: Final = "folder"
"""The identity of the folder that the log goes to."""
LAST_SUCCESS: Final = "last_success"
"""Time of the last successful run, in seconds since 1970."""
FAILED: Final = "failed:"
"""Prefix of a Failure: failed runs of that kind since then."""
REWRITE_WANTED: Final = "rewrite_wanted"
"""Time in ms of the oldest erasure whose data is still in the store's append-only file."""
REWRITE_ASKED: Final = "rewrite_asked"
"""The same for the erasures that the last requested rewrite removes."""
REWRITE_COVERS: Final = "rewrite_covers"
"""Time of that request in ms: earlier erasures need no other rewrite."""


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """The status of archiving and erasing."""

    last_success_s: float
    """Seconds since 1970, 0 if there was none."""
    failed_runs: Mapping[Failure, int]
    """Since the last success, by kind; all kinds are there."""
    pending_events: int
    """Events in the store's log now."""
    erasures_pending: int
    """Erasures that the archiver has not carried out yet."""
    oldest_erasure_s: float
    """The oldest of them, in seconds since 1970; 0 without any."""


def name_state(prefix: str) -> str:
    """The key of the status hash."""
    return f"{prefix}archive"


def list_commands(prefix: str) -> Iterator[Command]:
    """The commands whose replies `read_state` takes."""
    yield ("HGETALL", name_state(prefix))
    for partition in range(PARTITIONS):
        tag = tag_partition(partition)
        yield ("XLEN", f"{prefix}log:{tag}")
        yield ("ZCARD", f"{prefix}erasing:{tag}")
        yield ("ZRANGE", f"{prefix}erasing:{tag}", 0, 0, "WITHSCORES")


def read_state(replies: Sequence[object]) -> ArchiveState | None:
    """The status in the replies to `list_commands`; None if a reply is not as expected."""
    fields, *rest = replies
    lengths, counts, oldest = rest[::3], rest[1::3], rest[2::3]
    try:
        words = [word.decode() for word in fields]  # type: ignore[attr-defined]  # else it is caught below
        state = dict(zip(words[::2], words[1::2], strict=True))
        return ArchiveState(
            last_success_s=float(state.get(LAST_SUCCESS, 0)),
            failed_runs={kind: int(state.get(FAILED + kind, 0)) for kind in FAILURES},
            pending_events=sum(lengths),  # type: ignore[arg-type]
            erasures_pending=sum(counts),  # type: ignore[arg-type]
            oldest_erasure_s=min((float(found[1]) / 1000 for found in oldest if found), default=0.0),  # type: ignore[index]
        )
    except (TypeError, AttributeError, ValueError):
        return None
