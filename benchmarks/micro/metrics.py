"""What metrics cost: microseconds of one answered POST /recommend, and milliseconds of a scrape.

`python -m benchmarks.micro.metrics`, with one worker and with several, whose counts live in mapped files; medians of
15.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from service.telemetry.metrics import Metrics
from service.telemetry.multiprocess import METRICS_FOLDER, make_metrics_folder
from service.telemetry.stage_timer import StageTimer

REQUESTS = 2_000
SCRAPES = 10


def main() -> int:
    """Measure both, each in a process of its own: how prometheus_client counts is settled at its first import."""
    if len(sys.argv) > 1:
        print(measure())  # noqa: T201 - the result
        return 0
    for words, several in (("one worker", False), ("several workers", True)):
        with make_metrics_folder() as folder:
            environment = os.environ | ({METRICS_FOLDER: str(folder)} if several else {})
            command = [sys.executable, "-m", "benchmarks.micro.metrics", "measure"]
            output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603 - ours
            print(f"{words}: {output.strip()}")  # noqa: T201 - the result
    return 0


def measure() -> str:
    metrics = Metrics(event_types=["view"], model_version="v", routes=[("/recommend", "POST")])
    request_us = [_time(lambda: _answer_one(metrics), REQUESTS) * 1e6 for _ in range(15)]
    scrape_ms = [_time(metrics.expose, SCRAPES) * 1e3 for _ in range(15)]
    return f"{statistics.median(request_us):.1f} us a request, {statistics.median(scrape_ms):.1f} ms a scrape"


def _answer_one(metrics: Metrics) -> None:
    """All that one request, alone in its batch, is counted by."""
    timer = StageTimer()
    for stage in ("encode", "queue", "history", "encode", "queue", "inference"):
        timer.record(stage)
    metrics.queue_changed(1)
    metrics.waited(0.001)
    metrics.batch_started(1)
    metrics.queue_changed(0)
    metrics.store_called("read", 0.001)
    metrics.answered(source="model", degraded=None, version="v", variant="champion")
    metrics.request_ended(route="/recommend", method="POST", code=200, timer=timer)


def _time(call: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - started) / times


if __name__ == "__main__":
    sys.exit(main())
