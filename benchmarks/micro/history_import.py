"""What an import takes: events a second, memory of the command and of the store, disk.

`python -m benchmarks.micro.history_import [EVENTS]`: a log of as many events (1,000,000) of a twentieth as many users,
most with few, written as CSV; imported into an embedded store of its own with the defaults, again, and with the log.
"""

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from redis import Redis

from benchmarks.harness.console import say
from service.embedded.server import EmbeddedStore

EVENTS = 1_000_000
EVENTS_A_USER = 20
ITEMS = 50_000
FIRST_S = 1_700_000_000


def write_log(path: Path, events: int) -> None:
    """Events in the order of their times, each of a user and an item that are drawn by a power law."""
    dice = random.Random(1)  # noqa: S311 - no secret
    users = events // EVENTS_A_USER
    with path.open("w") as file:
        file.write("user_id,item_id,timestamp,type,value\n")
        for number in range(events):
            user, item = int(users * dice.random() ** 2), int(ITEMS * dice.random() ** 3)
            file.write(f"user-{user},item-{item},{FIRST_S + number},view,\n")


def measure(what: str, log: Path, data_dir: Path, events: int, *options: str) -> None:
    """Import the log, and say what it took."""
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        before, memory = time.perf_counter(), client.info("memory")["used_memory"]
        cpu_before, store_before = read_cpu_s(), read_store_cpu_s(client)
        command = [sys.executable, "-m", "service.cli", "import", str(log), "--data-dir", str(data_dir), *options]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - ours
        taken_s = time.perf_counter() - before
        held = client.info("memory")["used_memory"] - memory
        cpu_s, store_s = read_cpu_s() - cpu_before, read_store_cpu_s(client) - store_before
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    files = sum(path.stat().st_size for path in data_dir.rglob("*.aof"))
    say(said.rstrip())
    say(
        f"{what}: {events / taken_s:,.0f} events a second, start and reading included; CPU time: the command "
        f"{1e6 * cpu_s / events:.1f} µs an event, the store {1e6 * store_s / events:.1f}; {held / events:.0f} "
        f"bytes of store memory an event, {files / events:.0f} on disk; the largest process so far {peak:.0f} MiB"
    )


def read_cpu_s() -> float:
    """The CPU time of all commands that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def read_store_cpu_s(client: Redis) -> float:
    """The CPU time of the store so far."""
    told = client.info("cpu")
    return float(told["used_cpu_user"] + told["used_cpu_sys"])


def main() -> None:
    """Measure all three."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    say(f"{events:,} events, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="import-") as folder:
        log = Path(folder) / "events.csv"
        write_log(log, events)
        measure("histories alone", log, Path(folder) / "histories", events)
        measure("the same again", log, Path(folder) / "histories", events)
        measure("with the log", log, Path(folder) / "whole", events, "--with-log")


if __name__ == "__main__":
    main()
