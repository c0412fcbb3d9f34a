"""What it costs that each read of histories brings the catalogue's version along, in turns with a read without it.

`python -m benchmarks.micro.catalogue_version`: one user a read, over an embedded store of its own.
"""

import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.harness.console import say
from service.embedded.server import EmbeddedStore
from service.store.connection import connect
from service.store.event import make_event
from service.store.history import HistoryStore

READS = 4000
EVENTS = 50


async def measure(url: str) -> tuple[list[float], list[float]]:
    """The seconds of reads without the version, and with it."""
    store = HistoryStore(connect(url))
    await store.append(
        [make_event(user_id="u", item_id=f"i{n}", event_type="view", event_id=f"e{n}", now_ms=n) for n in range(EVENTS)]
    )
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(READS):
        store.on_catalogue_version = (lambda _reply, _asked_s: None) if number % 2 else None
        began_s = time.perf_counter()
        await store.read_many(["u"])
        seconds[number % 2].append(time.perf_counter() - began_s)
    await store.close()
    return seconds


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="version-") as folder, EmbeddedStore(Path(folder) / "data") as embedded:
        without, with_it = (statistics.quantiles(taken, n=100) for taken in uvloop.run(measure(embedded.url)))
    say(
        f"p50 {1e6 * without[49]:.0f} µs without the version, {1e6 * with_it[49]:.0f} with it; "
        f"p90 {1e6 * without[89]:.0f}, {1e6 * with_it[89]:.0f}"
    )
