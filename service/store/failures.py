"""Failures of the store: their kinds, and when and how they are logged."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

ErrorKind = Literal["connection", "timeout", "refused", "unsafe", "damaged", "script"]
ERROR_KINDS: Final[tuple[ErrorKind, ...]] = ("connection", "timeout", "refused", "unsafe", "damaged", "script")
"""No connection, no answer in time, a server that will not (full, read-only, loading, no permission), one that may lose
events (durability.py), keys that hold what this service did not write, all else."""

Calls = Literal["reads", "appends", "erasures", "changes"]
"""Names of the operations in the log, grouped by their consequence for clients."""

LOG_AGAIN_S: Final = 60.0
"""Shortest interval between two log messages about the same kind of failure."""
RECOVERED_AFTER_S: Final = 5.0
"""Calls count as recovered when none has failed for this long."""

_CONSEQUENCES: Final[Mapping[Calls, str]] = {
    "reads": "Recommendations continue without the histories that cannot be read, by the last known catalogue.",
    "appends": "Events are refused with 503, and clients are asked to send them again.",
    "erasures": "Erasures are refused with 503.",
    "changes": "Changes of the catalogue are refused with 503.",
}
_REMEDIES: Final[Mapping[ErrorKind, str]] = {
    "connection": "it cannot be reached. Check that it runs and that its address is right.",
    "timeout": "it does not answer in time. Check its CPU, its disk and the network.",
    "refused": "it refuses the command. Check its log and the permissions of its user.",
    "damaged": "keys of a whole partition hold data that this service did not write.",
    "script": "its reply is not understood. Use Redis 7 or later, or Valkey.",
}
_REFUSALS: Final[Mapping[str, str]] = {
    "BUSY": "a running script blocks it.",
    "CLUSTERDOWN": "its cluster is down.",
    "ERR max number of clients": "it has no room for another connection. Raise its maxclients.",
    "LOADING": "it is loading its data. Wait.",
    "MASTERDOWN": "it is a replica that lost its primary.",
    "MISCONF": "it cannot write its file. Check its log and its disk.",
    "MOVED": "it is a node of a Redis Cluster, which is not supported. Use a store that is not a cluster.",
    "NOAUTH": "it requires a password. Put it into --redis-password-file.",
    "NOPERM": "its user lacks a permission. deploy/valkey/users.acl lists all that are needed.",
    "NOREPLICAS": "it has too few replicas to accept writes.",
    "OOM": "it is full. Archive its log, or raise its maxmemory.",
    "READONLY": "it is a replica. Use its primary.",
    "WRONGPASS": "it does not accept the password.",
}
"""Prefixes of error replies of a server that works but refuses -> reason and remedy."""
_REFUSAL_CODES: Final = tuple(_REFUSALS)
_REFUSED_IN_CONNECTING: Final = (AuthenticationError, BusyLoadingError, ClusterDownError, NoPermissionError)
"""Refusals that redis-py raises while it opens a connection."""

_log = logging.getLogger(__name__)


def classify(error: BaseException) -> ErrorKind:
    """The kind of failure of an exception."""
    if isinstance(error.__cause__, AuthenticationError):
        error = error.__cause__  # which redis-py takes for a failure to connect
    if isinstance(error, TimeoutError | RedisTimeoutError):
        return "timeout"
    if isinstance(error, _REFUSED_IN_CONNECTING) or _is_refusal(error):
        return "refused"
    if isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE"):
        return "damaged"
    if isinstance(error, RedisConnectionError | OSError):
        return "connection"
    return "script"


def _is_refusal(reply: object) -> bool:
    """Whether a reply is the error of a server that refuses."""
    return isinstance(reply, ResponseError) and str(reply).startswith(_REFUSAL_CODES)


def is_users_damage(reply: object) -> bool:
    """Whether a reply is the error of a key of one user that holds a value of another type."""
    return isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE") and "partition" not in str(reply)


def explain_refusal(code: str) -> str:
    """Reason and remedy for an error code."""
    return _REFUSALS[code]


@dataclass(slots=True)
class _FailureStreak:
    """Recent failures of one kind of call."""

    failed_s: float = 0.0
    failures: int = 0
    """Since the streak began."""
    logged_s: dict[str, float] = field(default_factory=dict)


class FailureLog:
    """Logs failing calls to the store: the first of each reason at once, then once a minute, and the recovery.

    Messages hold nothing of a user or a request. Unexpected exceptions are logged with their frames.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._streaks: dict[Calls, _FailureStreak] = {}
        self._damage_logged_s = float("-inf")

    def failed(self, calls: Calls, error: BaseException, *, kind: ErrorKind) -> None:
        now_s = self._clock()
        streak = self._streaks.setdefault(calls, _FailureStreak())
        streak.failed_s = now_s
        streak.failures += 1
        reason = next((code for code in _REFUSAL_CODES if str(error).startswith(code)), type(error).__qualname__)
        if now_s - streak.logged_s.get(reason, float("-inf")) < LOG_AGAIN_S:
            return
        streak.logged_s[reason] = now_s
        explained = isinstance(error, RedisError | OSError)
        _log.error(
            "Store %s fail (%s, %s): %s %s",
            calls,
            kind,
            reason,
            _REFUSALS.get(reason, _REMEDIES.get(kind, "")),
            _CONSEQUENCES[calls],
            exc_info=None if explained else error,
            extra={"fields": {"failures": streak.failures}},
        )

    def succeeded(self, calls: Calls) -> None:
        streak = self._streaks.get(calls)
        if streak is not None and self._clock() - streak.failed_s >= RECOVERED_AFTER_S:
            del self._streaks[calls]
            _log.warning("Store %s succeed again, after %d failures", calls, streak.failures)

    def damaged(self, partition: str, error: BaseException) -> None:
        """Record that a user's keys hold data that this service did not write."""
        now_s = self._clock()
        if now_s - self._damage_logged_s < LOG_AGAIN_S:
            return
        self._damage_logged_s = now_s
        _log.error(
            "Stored data of a user in partition %s is damaged: refusing this user's events and ignoring the history; "
            "other users are not affected. See docs/runbook.md, Damaged keys",
            partition,
            exc_info=None if isinstance(error, RedisError | ValueError) else error,
        )
