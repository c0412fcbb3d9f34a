"""Resource metrics of the worker processes, summed over all workers, without a label per worker.

prometheus_client's own collector does not work with several processes.
"""

import os
import platform
import resource
import time
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge

REFRESH_S = 4.0
"""Below the usual scrape interval of 5 s."""

_MEMORY = Path("/proc/self/statm")
_FILES = Path("/proc/self/fd")
_STATE = Path("/proc/self/stat")
_PAGE_BYTES = resource.getpagesize()


class ProcessMetrics:
    """The metrics of this process, updated with each flush. Without /proc, memory and files stay 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._memory = Gauge(
            "nextitem_process_resident_memory_bytes",
            "Resident memory of all workers together; shared pages count once per worker",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._files = Gauge(
            "nextitem_process_open_fds",
            "Open file descriptors, including connections, of the worker with the most",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._files_limit = Gauge(
            "nextitem_process_max_fds",
            "Maximum open file descriptors per worker",
            registry=registry,
            multiprocess_mode="livemax",  # livemin would show the 0 of a starting worker
        )
        self._cpu = Counter(
            "nextitem_process_cpu_seconds_total",
            "CPU time of all workers together, including workers that have ended",
            registry=registry,
        )
        self._started = Gauge(
            "nextitem_process_start_time_seconds",
            "Start time of the worker that started last",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._started_s = time.time() - _read_age_s()
        self._build = Gauge(
            "nextitem_build_info",
            "1 for the running versions of nextitem, Python and ONNX Runtime",
            ("version", "python", "onnxruntime"),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._cpu_s = 0.0
        self._refreshed_s = float("-inf")

    def built(self, *, version: str, onnxruntime: str) -> None:
        """Describe the running versions."""
        self._build.labels(version, platform.python_version(), onnxruntime).set(1)

    def flush(self) -> None:
        """Update the metrics, at most every REFRESH_S."""
        now_s = time.monotonic()
        if now_s - self._refreshed_s < REFRESH_S:
            return
        self._refreshed_s = now_s
        cpu_s = time.process_time()
        self._cpu.inc(cpu_s - self._cpu_s)
        self._cpu_s = cpu_s
        self._started.set(self._started_s)
        self._files_limit.set(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        try:
            self._memory.set(int(_MEMORY.read_bytes().split()[1]) * _PAGE_BYTES)
            self._files.set(sum(1 for _ in os.scandir(_FILES)) - 1)  # without the descriptor that reads the folder
        except OSError:  # no /proc, or no descriptor left: keep the last values
            return


def _read_age_s() -> float:
    """The age of this process in seconds."""
    try:
        ticks = int(_STATE.read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0  # no /proc: assume that it just started
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
