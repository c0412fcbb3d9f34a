"""The names under which the store keeps everything. history.lua has the map of what each holds."""

import hashlib
from collections.abc import Iterator
from typing import Final
from zlib import crc32

PARTITIONS: Final = 64
"""Part of every key: to change it is to lose sight of everything stored."""

PREFIX: Final = "nextitem:"


class Keys:
    """The keys of one user, in the order of KEYS. The braces hold the partition alone: no user id steers the slot.

    Each is written when it is asked for: who reads a history wants two of them.
    """

    __slots__ = ("_of_all", "_of_user", "_prefix")

    def __init__(self, user_id: str, prefix: str) -> None:
        tag = tag_partition(crc32(user_id.encode()) % PARTITIONS)
        self._prefix, self._of_all, self._of_user = prefix, tag, f"{tag}:{user_id}"

    history = property(lambda self: f"{self._prefix}history:{self._of_user}")
    version = property(lambda self: f"{self._prefix}version:{self._of_user}")
    marks = property(lambda self: f"{self._prefix}marks:{self._of_user}")
    order = property(lambda self: f"{self._prefix}order:{self._of_user}")
    log = property(lambda self: f"{self._prefix}log:{self._of_all}")
    erased = property(lambda self: f"{self._prefix}erased:{self._of_all}")

    def __iter__(self) -> Iterator[str]:
        return iter((self.history, self.version, self.marks, self.order, self.log, self.erased))


KEY_COUNT: Final = 6


def name_keys(user_id: str, *, prefix: str = PREFIX) -> Keys:
    """The keys of a user, all in one cluster slot."""
    return Keys(user_id, prefix)


def tag_partition(number: int) -> str:
    """How a partition stands in keys."""
    return f"{{{number:02d}}}"


def digest_user(user_id: str) -> str:
    """What is kept of a user who was erased: enough to know the id when it comes again, and not the id."""
    return hashlib.blake2b(user_id.encode(), digest_size=16).hexdigest()
