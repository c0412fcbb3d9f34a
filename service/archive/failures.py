"""The kinds of an archiver run's failures, and a sentence for each."""

from typing import Final

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from service.archive.segments import FolderRefused, SegmentDamaged
from service.store.archive_status import Failure

_REFUSALS: Final = frozenset(
    ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY")
)
"""Codes of error replies of a server that works but refuses the command."""


def describe_failure(error: Exception) -> tuple[Failure, str]:  # noqa: PLR0911 - a list of kinds
    """The kind of a failure, and a sentence for the operator. It names no user."""
    if isinstance(error.__cause__, AuthenticationError):
        return "refused", "the store refuses the archiver's user or password"
    if isinstance(error, ResponseError):
        code, command = str(error).partition(" ")[0], " ".join(getattr(error, "__notes__", ()))
        if code in _REFUSALS:
            return "refused", f"the store refuses {command} ({code})"
        return (
            "data",
            f"the store cannot do {command} ({code}): a key of the log holds data that the service did not write",
        )
    if isinstance(error, FolderRefused):
        return "folder", str(error)
    if isinstance(error, SegmentDamaged):
        return "segment", f"{error}. All other work is done; erasures wait for this file"
    if isinstance(error, TimeoutError):
        return "timeout", "the store did not answer in time"
    if isinstance(error, RedisError | ConnectionError):
        return "connection", "the store cannot be reached"
    if isinstance(error, OSError):
        return (
            "disk",
            f"the archive cannot be written: {error.strerror}. Until it can, the log stays in the store and fills it",
        )
    if isinstance(error, ValueError | KeyError):
        return "data", "the store's log holds data that the service did not write"
    return "other", "the archiver failed"
