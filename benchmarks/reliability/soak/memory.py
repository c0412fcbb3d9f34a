"""How much memory a process holds, and how fast that grows."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sample:
    """A process at one moment."""

    at_s: float
    resident_mib: float
    open_files: int
    """Descriptors, sockets among them."""


def sample(process_id: int, *, at_s: float) -> Sample:
    """Look at a process of this machine. Raises OSError when it has ended."""
    folder = Path("/proc") / str(process_id)
    [line] = [line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:")]
    return Sample(at_s, int(line.split()[1]) / 1024, len(list((folder / "fd").iterdir())))


def measure_growth(samples: Sequence[Sample]) -> float:
    """MiB a minute: the slope of the line through all samples."""
    times_s = [each.at_s for each in samples]
    return 60 * statistics.linear_regression(times_s, [each.resident_mib for each in samples]).slope
