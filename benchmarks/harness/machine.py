"""What a benchmark ran on, beyond what a run of the trainer notes."""

import os
import platform
from pathlib import Path


def describe_machine() -> dict[str, object]:
    """The processor, how busy it was in the last minutes, and how politely the benchmark ran."""
    return {"processor": _read_processor(), "load_average": [round(load, 2) for load in os.getloadavg()],
            "niceness": os.nice(0)}  # fmt: skip


def _read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
