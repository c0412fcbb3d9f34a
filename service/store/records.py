"""What the store returns: outcomes of events, and histories."""

from dataclasses import dataclass, field
from enum import IntEnum

from model.contract.event_inputs import Events


class Outcome(IntEnum):
    """The outcome of storing an event, numbered as in append.lua.

    LATE: accepted, but too old to be remembered. ERASED: not stored, because it is from before its user was erased.
    DAMAGED: not stored, because a key of its user holds data that this service did not write.
    """

    ACCEPTED = 0
    LATE = 1
    DUPLICATE = 2
    CONFLICT = 3
    ERASED = 4
    DAMAGED = 5


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of each event, in order, and the new version of every user whose keys are not damaged."""

    outcomes: list[Outcome]
    versions: dict[str, int]


@dataclass(frozen=True, slots=True)
class History:
    """A user's remembered history, oldest first. It reflects at least the first `version` accepted events."""

    version: int
    item_ids: list[str]
    last_event_at_ms: int | None
    events: Events | None = field(default=None, compare=False, repr=False)
    """Event features of each item, if the store reads them."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One remembered event."""

    event_id: str
    item_id: str
    type: str
    value: float | None
    timestamp_ms: int
