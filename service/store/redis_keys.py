"""The names of all keys in the store. append.lua documents what each holds."""

import hashlib
from collections.abc import Iterator
from typing import Final
from zlib import crc32

PARTITIONS: Final = 64
"""Part of every key: changing it makes everything stored unreachable."""

PREFIX: Final = "nextitem:"

LOST_EVENTS: Final = f"{PREFIX}lost_events"
"""How many events and changes of the catalogue the embedded store has lost (loss_detection.py), until acknowledged."""

WORKERS: Final = f"{PREFIX}workers"
"""What each worker serves (worker_states.py)."""


class CatalogueKeys:
    """The keys of the catalogue, in the order of KEYS in catalogue.lua. The braces put them into one cluster slot.

    A store has one catalogue, as it has one history of each user: item ids mean the same in both.
    """

    __slots__ = ("items", "log", "version")

    def __init__(self, prefix: str = PREFIX) -> None:
        self.version, self.items, self.log = (f"{prefix}{{catalogue}}:{kind}" for kind in ("version", "items", "log"))


class Keys:
    """The keys of one user, in the order of KEYS in append.lua; `erasing` is for erase.lua only.

    The braces hold only the partition, so that no user id decides the cluster slot. Each key is built on access,
    because reading a history needs only two of them.
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
    erasing = property(lambda self: f"{self._prefix}erasing:{self._of_all}")

    @property
    def partition(self) -> str:
        """The partition's tag in the keys. One of PARTITIONS, each shared by many users."""
        return self._of_all

    def __iter__(self) -> Iterator[str]:
        return iter((self.history, self.version, self.marks, self.order, self.log, self.erased))


KEY_COUNT: Final = 6


def name_keys(user_id: str, *, prefix: str = PREFIX) -> Keys:
    """The keys of a user, all in one cluster slot."""
    return Keys(user_id, prefix)


def tag_partition(number: int) -> str:
    """A partition's tag in keys."""
    return f"{{{number:02d}}}"


def digest_user(user_id: str) -> str:
    """The digest kept of an erased user: it recognises the id without revealing it."""
    return hashlib.blake2b(user_id.encode(), digest_size=16).hexdigest()
