"""Metrics of the worker processes: how many serve, and their resources over all workers, without a label per worker.

prometheus_client's own collector of resources does not work with several processes.
"""

import os
import platform
import resource
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from service.telemetry import definitions

REFRESH_S = 4.0
"""Below the usual scrape interval of 5 s."""

_MEMORY = Path("/proc/self/statm")
_FILES = Path("/proc/self/fd")
_STATE = Path("/proc/self/stat")
_PAGE_BYTES = resource.getpagesize()


class WorkerMetrics:
    """Metrics of the worker processes, set by the supervisor or by the only worker."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._configured = definitions.WORKERS.make(registry)
        self._missing = definitions.WORKERS_MISSING.make(registry)
        self._deaths = definitions.WORKER_DEATHS.make(registry)

    def workers_seen(self, *, configured: int, missing: int) -> None:
        """Set the number of configured workers, and of those that do not serve."""
        self._configured.set(configured)
        self._missing.set(missing)

    def worker_died(self) -> None:
        """Count a worker that ended unexpectedly."""
        self._deaths.inc()


class ProcessMetrics:
    """The metrics of this process, updated with each flush. Without /proc, memory and files stay 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._memory = definitions.PROCESS_MEMORY.make(registry)
        self._files = definitions.PROCESS_FILES.make(registry)
        self._files_limit = definitions.PROCESS_FILES_LIMIT.make(registry)
        self._cpu = definitions.PROCESS_CPU.make(registry)
        self._started = definitions.PROCESS_START.make(registry)
        self._started_s = time.time() - _read_age_s()
        self._build = definitions.BUILD_INFO.make(registry)
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
