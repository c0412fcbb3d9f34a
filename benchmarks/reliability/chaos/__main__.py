"""Everything goes wrong while clients send events, and then what is stored is compared with what was acknowledged.

`python -m benchmarks.reliability.chaos`, or `make chaos`: the embedded Valkey, or `--store` with the path of another
server. Ends with status 1 when anything is lost, stored twice or out of order, or when the control, a store that syncs
once a second, loses nothing: then the test is blind. And when /recommend, asked all the while, was not answered as
promised.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from benchmarks.harness.console import say
from benchmarks.harness.cpu_time import compare, look
from benchmarks.harness.powercut import build_library
from benchmarks.harness.processes import SAFE_OPTIONS
from benchmarks.reliability.chaos.checker import Violation
from benchmarks.reliability.chaos.faults import KILLED, KINDS, cut_power
from benchmarks.reliability.chaos.recommend_probe import asking, judge, sort_out
from benchmarks.reliability.chaos.report import sum_up, tabulate
from benchmarks.reliability.chaos.system import System, run_system
from service.embedded.valkey import find_binary

BUNDLE = Path("tests/serving/bundle")
CONTROL_CUTS = 3

Start = Callable[..., AbstractAsyncContextManager[System]]
"""run_system with everything but the folder."""


async def main(arguments: argparse.Namespace, folder: Path) -> int:
    """Both runs; the exit status."""
    say(f"fdatasync of 4 KiB here: median {measure_fsync_ms(folder):.2f} ms")
    start = partial(run_system, binary=arguments.store, library=build_library(folder), bundle=BUNDLE)
    kept = await torment(folder, start, events=arguments.events, rounds=arguments.rounds)
    losses = await control(folder, start)
    return 0 if kept and losses else 1


async def torment(folder: Path, start: Start, *, events: int, rounds: int) -> bool:
    """Every fault so many times, with the events in between; says what happened. Whether all promises were kept."""
    plan = [*KINDS] * rounds
    recovered_s: defaultdict[str, list[float]] = defaultdict(list)
    (place := folder / "faults").mkdir()
    async with start(place) as system:
        await system.wait_for(1)
        started_s = time.monotonic()
        before = look()
        async with asking(lambda: system.service.url) as asker:
            for number, kind in enumerate(plan, start=1):
                with asker.during(kind):
                    await KINDS[kind](system)
                    over_s = time.monotonic()
                    await system.wait_for(system.clients.acknowledged + 1)
                    recovered_s[kind].append(time.monotonic() - over_s)
                await system.wait_for(events * number // len(plan))
                say(f"[{number:>3}/{len(plan)}] {kind}: {system.clients.acknowledged:,} events acknowledged")
        after = look()
        violations = await system.settle()
        took_s = time.monotonic() - started_s
        clients, archive = system.clients, system.archive
    asked = sort_out(asker.outcomes, asker.spans, killed=KILLED)
    say(tabulate(asked, recovered_s))
    retried = sum(event.attempts > 1 for event in clients.sent)
    say(
        f"\n{clients.acknowledged:,} events acknowledged in {took_s:.0f} s, {retried:,} of them sent more than once, "
        f"{clients.failed_attempts:,} requests refused or lost"
    )
    say(f"Violations: {describe(violations)}; {len(list(archive.glob('*.jsonl.gz'))):,} segments archived meanwhile")
    say(sum_up(asked))
    say(f"  This process, all clients and the proxy, {compare(before, after)}")
    return not violations and judge(asked)


async def control(folder: Path, start: Start) -> list[Violation]:
    """The same power cuts of a store that syncs once a second, for a service that was told to take events anyway."""
    (place := folder / "control").mkdir()
    options = {**SAFE_OPTIONS, "appendfsync": "everysec"}
    async with start(place, options=options, durability="relaxed") as system:
        for number in range(1, CONTROL_CUTS + 1):
            await system.wait_for(number * 1_000)
            await cut_power(system)
        violations = await system.settle()
        say(f"Control, {CONTROL_CUTS} power cuts with fsync once a second: {describe(violations)}")
    return [violation for violation in violations if violation.kind == "lost"]


def measure_fsync_ms(folder: Path) -> float:
    """The median time of an fdatasync after 4 KiB; it bounds what any store can acknowledge."""
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(bytes(4096))
            started_s = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started_s)
    return statistics.median(times) * 1000


def describe(violations: Sequence[Violation]) -> str:
    """How many of each kind."""
    counts = Counter(violation.kind for violation in violations)
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common()) or "none"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.chaos", description=__doc__)
    parser.add_argument(
        "--events", type=int, default=50_000, help="events to acknowledge in all (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="how often each kind of fault happens (default: %(default)s)"
    )
    parser.add_argument("--store", type=Path, help="another server than the embedded Valkey, as /usr/bin/redis-server")
    arguments = parser.parse_args()
    arguments.store = arguments.store or find_binary()
    return arguments


if __name__ == "__main__":
    given = read_arguments()
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        try:
            sys.exit(asyncio.run(main(given, Path(temporary))))
        except KeyboardInterrupt:
            sys.exit(130)
