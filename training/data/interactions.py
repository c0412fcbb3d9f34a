"""An interaction log in memory: flat arrays with one slice a user, ready for matrix work."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from model.contract.vocabulary import Vocabulary
from training.data.histories import Histories


@dataclass(frozen=True, kw_only=True)
class Log:
    """U users with n events, users by id, each user's events by time.

    The events of user u are `items[offsets[u]:offsets[u + 1]]`, as item indexes of `vocabulary`.
    """

    user_ids: list[str]
    vocabulary: Vocabulary
    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    timestamps_ms: NDArray[np.int64] | None
    types: NDArray[np.str_] | None = None
    """The type of each event, where [data] asks for it."""
    values: NDArray[np.float32] | None = None
    """The value of each event, NaN where there is none, where [data] asks for it."""
    dropped: int = 0
    """Events left out because the given vocabulary lacks their item."""
    read_as: str = ""
    """How the file was read: its form, columns and times."""
    warnings: tuple[str, ...] = ()
    """What was left out of the file and what may be wrong with it, a sentence each."""

    @property
    def histories(self) -> Histories:
        """All events of every user (U)."""
        return Histories(self.items, self.offsets[:-1], self.offsets[1:])

    @property
    def fingerprint(self) -> str:
        """A digest of the content: the same for the same events in any file format or order of users."""
        digest = hashlib.sha256(self.vocabulary.to_bytes())
        digest.update("\n".join(self.user_ids).encode())
        digest.update(self.offsets.astype("<i8").tobytes())
        digest.update(self.items.astype("<i4").tobytes())
        if self.timestamps_ms is not None:
            digest.update(self.timestamps_ms.astype("<i8").tobytes())
        if self.types is not None:
            digest.update("\n".join(self.types.tolist()).encode())
        if self.values is not None:
            digest.update(self.values.astype("<f4").tobytes())
        return f"sha256:{digest.hexdigest()}"

    @property
    def last_event_at(self) -> str | None:
        """The time of the newest event, RFC 3339 in UTC, or None for a log without times."""
        if self.timestamps_ms is None or not len(self.timestamps_ms):
            return None
        newest = datetime.fromtimestamp(int(self.timestamps_ms.max()) // 1000, tz=UTC)
        return f"{newest:%Y-%m-%dT%H:%M:%SZ}"
