"""Checks by the store's settings that it keeps the events that it acknowledges.

The settings are checked before the first event and again with every append: the round trip that stores events ends with
a query of the settings, and events count as acknowledged only if these are safe. So a setting that changes at run time,
or another server behind the same address, is noticed.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from service.errors import StoreNotDurable
from service.settings import Durability

SAFE: Final[Mapping[str, str]] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    # A writable replica loses its writes when it follows its primary again. A read-only one refuses events itself, from
    # the moment it becomes one.
    "replica-read-only": "yes",
}
"""Settings with which a store never loses acknowledged events."""

REWRITING: Final = "aof_rewrite_in_progress"
CLUSTER: Final = "cluster_enabled"
"""Unsafe with any --durability: most users' keys are on another node."""

RECHECK_S = 1.0
"""Shortest interval between checks of an unsafe store."""

UnsafeSettings = Mapping[str, str]
"""Unsafe settings -> what to do about each."""

_log = logging.getLogger(__name__)


def check_settings(reply: object) -> UnsafeSettings:
    """Unsafe settings in the reply to CONFIG GET of all SAFE settings. The reply may be an error."""
    if not isinstance(reply, dict):
        return {"CONFIG GET": "cannot be read: allow the service's user to run it, on a server of version 7 or later"}
    return {
        setting: f"is not {safe}: run CONFIG SET {setting} {safe}, and set it in the store's configuration file"
        for setting, safe in SAFE.items()
        if reply.get(setting) != safe
    }


def check_mode(info: Mapping[str, str]) -> UnsafeSettings:
    """Unsafe values in INFO cluster."""
    if info.get(CLUSTER) == "1":
        return {CLUSTER: "is 1: a Redis Cluster is not supported, so use a store that is not a cluster"}
    return {}


def check_persistence(info: Mapping[str, Any]) -> UnsafeSettings:
    """Unsafe values in INFO persistence, for a store that has not been found safe yet.

    An append-only file that was just switched on is empty until its first rewrite ends. From outside this looks like
    any other rewrite, which a store that is known to be safe may do at any time.
    """
    unsafe = {}
    if info.get("aof_last_write_status", "ok") != "ok":
        unsafe["aof_last_write_status"] = "is not ok: check the store's log and its disk"
    if int(info.get("aof_rewrite_in_progress", 0)) or int(info.get("aof_rewrite_scheduled", 0)):
        unsafe[REWRITING] = "is 1: wait until the append-only file is rewritten"
    return unsafe


class DurabilityGuard:
    """Keeps the result of the last check, logs changes, and decides whether events may be stored."""

    def __init__(self, durability: Durability) -> None:
        self.strict = durability == "strict"
        self._unsafe: UnsafeSettings | None = None
        self._checked_s = float("-inf")

    @property
    def known_safe(self) -> bool:
        """Whether the store was safe at the last check."""
        return self._unsafe is not None and not self._unsafe

    @property
    def waits_for_rewrite(self) -> bool:
        """Whether nothing speaks against the store but that it rewrites its append-only file, which ends by itself."""
        return self._unsafe is not None and set(self._unsafe) == {REWRITING}

    @property
    def needs_check(self) -> bool:
        """Whether the store must be checked before events are stored."""
        unsafe = not self.known_safe if self.strict else self._is_cluster
        return unsafe and time.monotonic() - self._checked_s >= RECHECK_S

    @property
    def _is_cluster(self) -> bool:
        return self._unsafe is not None and CLUSTER in self._unsafe

    def update(self, unsafe: UnsafeSettings) -> None:
        """Record the result of a check, and log it if it changed."""
        if unsafe and unsafe != self._unsafe:
            sentence = "; ".join(f"{name} {advice}" for name, advice in unsafe.items())
            if CLUSTER in unsafe:
                _log.error("Refusing events: the store is not supported. %s", sentence)
            elif self.strict:
                _log.error("The store may lose events: refusing them. %s. --durability relaxed accepts them", sentence)
            else:
                _log.warning("The store may lose events that it acknowledged (--durability relaxed). %s", sentence)
        elif self._unsafe and not unsafe:
            _log.warning("The store is safe again: acknowledged events are on disk")
        self._unsafe = unsafe
        self._checked_s = time.monotonic()

    def require(self) -> None:
        """Raise StoreNotDurable unless events may be stored."""
        if (self.strict and not self.known_safe) or self._is_cluster:
            raise StoreNotDurable(kind="unsafe")
