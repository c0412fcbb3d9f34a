"""The store's own state: its memory, whether it accepts events, and its clock."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from service.store.archive_status import ArchiveState
from service.store.failures import explain_refusal

SKEW_LIMIT_S: Final = 5.0
"""Clock skew between the store and this machine from which the log warns. Less does no harm."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreState:
    """The server's state."""

    durable: bool
    """Whether its settings keep acknowledged events. Unreadable settings count as unsafe."""
    memory_bytes: int
    memory_limit_bytes: int
    """0: none."""
    clock_skew_s: float | None = None
    """Seconds by which its clock is ahead of this machine's; None if unknown."""
    lost_events: int = 0
    """How many events the embedded store has lost (loss_detection.py)."""
    archive: ArchiveState | None = None
    """None if the service's user may not read it."""


def read_info(reply: object) -> dict[str, str]:
    """The reply to INFO, by name. Raises TypeError for any other reply."""
    if not isinstance(reply, bytes):
        raise TypeError("INFO was not answered with text")
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)  # others are headings


def read_settings(reply: object) -> object:
    """The reply to CONFIG GET, by name, or the error reply."""
    if not isinstance(reply, list):
        return reply
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def find_refusal(info: Mapping[str, str]) -> str | None:
    """The error code with which the store would refuse an event, judged by INFO; None if it would accept it."""
    if info.get("cluster_enabled") == "1":
        return "MOVED"
    if info.get("role", "master") != "master":
        return "READONLY"
    limit = int(info.get("maxmemory", 0))
    counted = int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))
    return "OOM" if 0 < limit < counted else None


def measure_skew(info: Mapping[str, str], *, asked_s: float, answered_s: float) -> float | None:
    """Seconds by which the store's clock is ahead, given our times of query and reply; None if unknown."""
    if "server_time_usec" not in info:
        return None
    return int(info["server_time_usec"]) / 1e6 - (asked_s + answered_s) / 2


class StateLog:
    """Logs when the store begins to refuse events or its clock drifts, and when that ends."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self._skewed = False

    def update_refusal(self, refusal: str | None) -> None:
        """Record the result of find_refusal, and log a change."""
        if refusal is not None and refusal != self.refusal:
            _log.error("The store refuses events: %s", explain_refusal(refusal))
        elif refusal is None and self.refusal is not None:
            _log.warning("The store accepts events again")
        self.refusal = refusal

    def update_skew(self, skew_s: float | None) -> None:
        """Record the result of measure_skew, and log a change."""
        skewed = skew_s is not None and abs(skew_s) > SKEW_LIMIT_S
        if skewed and not self._skewed:
            _log.warning(
                "The clocks of the store and of this machine are %.0f s apart: synchronise both by NTP. "
                "See docs/runbook.md, Clocks",
                skew_s,
            )
        elif self._skewed and not skewed:
            _log.warning("The clocks of the store and of this machine agree again")
        self._skewed = skewed
