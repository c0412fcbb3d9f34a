"""The catalogue's version, as the store has it: the number of its changes. Processes that rank nothing read it, too."""

from typing import Final

from redis.exceptions import RedisError

VERSION_DIGITS: Final = 15
"""Maximum digits of a version, as in catalogue.lua."""


def read_version_reply(reply: object) -> int:
    """The version in a reply. Raises ValueError, TypeError or RedisError for what is none."""
    if reply is None:
        return 0
    if isinstance(reply, RedisError):
        raise reply
    if not (isinstance(reply, bytes) and reply.isdigit() and len(reply) <= VERSION_DIGITS):
        raise ValueError("the version of the catalogue is no count")
    return int(reply)


def read_entry_version(entry_id: bytes) -> int:
    """The version in the id of a change. Raises ValueError."""
    return int(entry_id.partition(b"-")[0])
