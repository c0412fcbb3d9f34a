"""The names under which the store keeps everything. history.lua has the map of what each holds."""

import hashlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Final
from zlib import crc32

PARTITIONS: Final = 64
"""Part of every key: to change it is to lose sight of everything stored."""

PREFIX: Final = "nextitem:"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one user, in the order of KEYS. The braces hold the partition alone: no user id steers the slot."""

    history: str
    version: str
    marks: str
    order: str
    log: str
    erased: str

    def __iter__(self) -> Iterator[str]:
        return iter(astuple(self))


KEY_COUNT: Final = len(fields(Keys))


def name_keys(user_id: str, *, prefix: str = PREFIX) -> Keys:
    """The keys of a user, all in one cluster slot."""
    tag = tag_partition(crc32(user_id.encode()) % PARTITIONS)
    return Keys(
        history=f"{prefix}history:{tag}:{user_id}",
        version=f"{prefix}version:{tag}:{user_id}",
        marks=f"{prefix}marks:{tag}:{user_id}",
        order=f"{prefix}order:{tag}:{user_id}",
        log=f"{prefix}log:{tag}",
        erased=f"{prefix}erased:{tag}",
    )


def tag_partition(number: int) -> str:
    """How a partition stands in keys."""
    return f"{{{number:02d}}}"


def digest_user(user_id: str) -> str:
    """What is kept of a user who was erased: enough to know the id when it comes again, and not the id."""
    return hashlib.blake2b(user_id.encode(), digest_size=16).hexdigest()
