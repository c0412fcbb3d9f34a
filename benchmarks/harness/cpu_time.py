"""Whether a process had the cores that it wanted: without them, its times say more of the machine than of itself."""

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Turn:
    """Of a process's main thread, which runs its event loop, up to now. Seconds."""

    at_s: float
    ran_s: float
    waited_s: float
    """Ready to run, while others had the cores."""


def look(process_id: int | None = None) -> Turn:
    """Look at a process of this machine, this one unless another is named. Linux only. Raises OSError."""
    ran_ns, waited_ns, _ = (Path("/proc") / str(process_id or os.getpid()) / "schedstat").read_text().split()
    return Turn(time.monotonic(), int(ran_ns) / 1e9, int(waited_ns) / 1e9)


def compare(first: Turn, last: Turn) -> str:
    """What share of the time between it ran, and what share it waited for a core."""
    took_s = last.at_s - first.at_s
    ran, waited = (last.ran_s - first.ran_s) / took_s, (last.waited_s - first.waited_s) / took_s
    return f"ran {100 * ran:.0f} % of the time, waited for a core {100 * waited:.0f} %"


def list_family(process_id: int) -> list[int]:
    """A process of this machine and all that descend from it, as long as their parents live. Linux only."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _read_stat(int(folder.name))):
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    family = [process_id]
    for member in family:
        family += children.get(member, [])
    return family


def count_cpu(process_id: int) -> float:
    """CPU seconds that a process and its descendants have used, in their kernel's ticks. Linux only."""
    ticks = 0
    for member in list_family(process_id):
        if fields := _read_stat(member):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_stat(process_id: int) -> list[str]:
    """What follows the name in /proc/PID/stat: state, parent and on; empty once it is gone."""
    try:
        return (Path("/proc") / str(process_id) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
