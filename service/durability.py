"""Whether the store keeps what it acknowledged, by its own settings.

They are looked at before the first event, and again with every append: the same round trip that stores events asks for
them last, and an answer that is not safe is no acknowledgement. So neither a setting changed while all runs nor another
server behind the same address goes unnoticed.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from service.errors import StoreNotDurable

Durability = Literal["strict", "relaxed"]
"""strict: a store that may lose events gets none. relaxed: it gets them, and readiness and metrics say so."""

SAFE: Final[Mapping[str, str]] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
"""The settings of a store that never loses what it acknowledged."""

LOOK_AGAIN_S = 1.0
"""How long a store that was found unsafe is left alone before an event makes us look again."""

Faults = Mapping[str, str]
"""What is not safe: the setting, and what to do about it."""

_log = logging.getLogger(__name__)


def judge_settings(reply: object) -> Faults:
    """What is wrong in the answer to CONFIG GET of all SAFE settings, which may be an error."""
    if not isinstance(reply, dict):
        return {"CONFIG GET": "cannot be read: allow it to the service's user, on a server of version 7 or later"}
    return {
        setting: f"is not {safe}: CONFIG SET {setting} {safe}, and the same in the store's file"
        for setting, safe in SAFE.items()
        if reply.get(setting) != safe
    }


def judge_persistence(info: Mapping[str, Any]) -> Faults:
    """What is wrong in INFO persistence, for a store that is not known yet.

    An append-only file that was just switched on holds nothing until the rewrite that it begins with has ended. From
    outside that looks as any other rewrite, which a store that is known to be safe may do at any time.
    """
    faults = {}
    if info.get("aof_last_write_status", "ok") != "ok":
        faults["aof_last_write_status"] = "is not ok: look at the store's log and at its disk"
    if int(info.get("aof_rewrite_in_progress", 0)) or int(info.get("aof_rewrite_scheduled", 0)):
        faults["aof_rewrite_in_progress"] = "is 1: wait until the append-only file is written anew"
    return faults


class DurabilityGuard:
    """Remembers how the store was found, says in the log when that changes, and lets events pass or not."""

    def __init__(self, durability: Durability) -> None:
        self.strict = durability == "strict"
        self._faults: Faults | None = None
        self._looked_s = float("-inf")

    @property
    def known_safe(self) -> bool:
        """Whether the store was found safe when it was last looked at."""
        return self._faults is not None and not self._faults

    @property
    def wants_look(self) -> bool:
        """Whether events must wait for a look at the store."""
        return self.strict and not self.known_safe and time.monotonic() - self._looked_s >= LOOK_AGAIN_S

    def see(self, faults: Faults) -> None:
        """Take note of how the store is found now."""
        if faults and faults != self._faults:
            sentence = "; ".join(f"{name} {advice}" for name, advice in faults.items())
            if self.strict:
                _log.error("The store may lose events and gets none. %s. --durability relaxed takes them", sentence)
            else:
                _log.warning("The store may lose events that are acknowledged (--durability relaxed). %s", sentence)
        elif self._faults and not faults:
            _log.warning("The store is safe again: what it acknowledges is on disk")
        self._faults = faults
        self._looked_s = time.monotonic()

    def require(self) -> None:
        """Raise StoreNotDurable unless events may be taken."""
        if self.strict and not self.known_safe:
            raise StoreNotDurable(kind="unsafe")
