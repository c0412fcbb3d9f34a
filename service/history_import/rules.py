"""Which events of a log are for the histories: the rules of POST /events, and what the command's options leave out."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Literal

from model.contract.id_rule import is_valid_id
from service.api.timestamps import MAX_AHEAD_MS

LeftOut = Literal["type", "value", "before"]
"""Which option left an event out: --types, --min-value or --before."""

FAULTS: Final = {
    "early": "the time lies before 1970",
    "ahead": "the time lies more than five minutes ahead of this machine's clock",
    "type": "its type is none that the service takes: give --event-types as the service has it",
    "no_value": "it has no value, which --min-value needs",
}


@dataclass(slots=True)
class Rules:
    """What becomes of an event. `left_out` counts by the option."""

    event_types: Collection[str]
    """Those that the service takes."""
    now_ms: int
    only_types: Collection[str] = ()
    """Those that are wanted; all if empty."""
    min_value: float | None = None
    before_ms: int | None = None
    left_out: Counter[LeftOut] = field(default_factory=Counter)

    def take(self, timestamp_ms: int, event_type: str, value: float | None) -> bool:
        """Whether an event is imported. Raises ValueError, with a sentence, for one that POST /events would refuse.

        But for times before 2000: that rule is for clients that send seconds, and a log's unit is known.
        """
        if self.only_types and event_type not in self.only_types:
            self.left_out["type"] += 1
            return False
        if self.min_value is not None:
            if value is None:
                raise ValueError(FAULTS["no_value"])
            if value < self.min_value:
                self.left_out["value"] += 1
                return False
        if self.before_ms is not None and timestamp_ms >= self.before_ms:
            self.left_out["before"] += 1
            return False
        if timestamp_ms < 0:
            raise ValueError(FAULTS["early"])
        if timestamp_ms > self.now_ms + MAX_AHEAD_MS:
            raise ValueError(FAULTS["ahead"])
        if event_type not in self.event_types:
            raise ValueError(FAULTS["type"])
        return True


def check_types(types: Collection[str]) -> None:
    """Raise ValueError unless all are types."""
    if not all(map(is_valid_id, types)):
        raise ValueError("a type is printable ASCII without spaces")
