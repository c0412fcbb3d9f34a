"""Mixed traffic for ten minutes, and how fast the service's memory grows meanwhile.

`python -m benchmarks.soak`, or `make soak`: ends with status 1 when memory grows by more than 1 MiB a minute, open
files add up, or more than one answer in a hundred is missing or a 5xx; and when the control, the same service with a
leak, does not grow: then the measurement is blind. The first fifth is warm-up and does not count.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.chaos.processes import ServiceProcess
from benchmarks.load import Outcome, fire, percentile
from benchmarks.soak.memory import Sample, measure_growth, sample
from benchmarks.soak.traffic import mix
from service.embedded import EmbeddedStore

BUNDLE = Path("tests/serving/bundle")
LIMIT_MIB_PER_MINUTE = 1.0
LIMIT_FILES = 69
"""The store's pool may grow to 64 connections; what leaks comes with every request, or every run of the archiver."""
LIMIT_FAILED = 0.01
"""Share of requests. On a busy machine the store answers some too late; with more, there is no work to be watched."""
WARM_UP = 0.2
"""Share of a run."""
CONTROL = 0.3
"""How long the control takes, as a share of the run."""
_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Soaked:
    """What one run showed."""

    samples: list[Sample]
    """Those after the warm-up."""
    outcomes: list[Outcome]

    @property
    def growth(self) -> float:
        """MiB a minute."""
        return measure_growth(self.samples)

    @property
    def more_files(self) -> int:
        """How many more files are open in the last fifth than in the first, at the quietest moment of each."""
        fifth = max(1, len(self.samples) // 5)
        first, last = self.samples[:fifth], self.samples[-fifth:]
        return min(each.open_files for each in last) - min(each.open_files for each in first)

    @property
    def failed(self) -> Counter[str]:
        """How many requests of each kind got a 5xx or no answer."""
        return Counter(outcome.label for outcome in self.outcomes if not 200 <= outcome.status < 500)


async def main(minutes: float, rate: float, folder: Path) -> int:
    """Both runs; the exit status."""
    (place := folder / "service").mkdir()
    soaked = await soak(place, seconds=60 * minutes, rate=rate)
    describe("Service", soaked)
    (place := folder / "control").mkdir()
    control = await soak(place, seconds=60 * minutes * CONTROL, rate=rate, module="benchmarks.soak.leaking")
    describe("Control, which keeps every request", control)
    well = (
        soaked.growth <= LIMIT_MIB_PER_MINUTE
        and soaked.more_files <= LIMIT_FILES
        and soaked.failed.total() <= LIMIT_FAILED * len(soaked.outcomes)
    )
    sees = control.growth > LIMIT_MIB_PER_MINUTE
    say(f"Service: {'well' if well else 'NOT WELL'}. Control: {'noticed' if sees else 'NOT NOTICED'}.")
    return 0 if well and sees else 1


async def soak(folder: Path, *, seconds: float, rate: float, module: str = "service.cli") -> Soaked:
    """Run a service over a store of its own under traffic; the archiver moves the log every minute."""
    with EmbeddedStore(folder / "data") as store:
        archive = ("--archive-dir", str(folder / "archive"), "--archive-minutes", "1")
        service = ServiceProcess(store.url, BUNDLE, folder / "service.log", *archive, module=module)
        await service.start()
        url = urlsplit(service.url)
        watching = asyncio.create_task(watch(service.process_id, seconds))
        outcomes = await fire(str(url.hostname), url.port or 0, mix(rate=rate, seconds=seconds))
        samples = await watching
        await service.stop()
    return Soaked([each for each in samples if each.at_s >= WARM_UP * seconds], outcomes)


async def watch(process_id: int, seconds: float) -> list[Sample]:
    """Look at a process every other second, and say every minute what is seen."""
    began_s, samples = time.monotonic(), list[Sample]()
    while (at_s := time.monotonic() - began_s) < seconds:
        samples.append(sample(process_id, at_s=at_s))
        if at_s // 60 > (at_s - _EVERY_S) // 60:
            say(f"[{at_s / 60:>4.0f}/{seconds / 60:.0f} min] {samples[-1].resident_mib:.1f} MiB resident")
        await asyncio.sleep(_EVERY_S)
    return samples


def describe(name: str, soaked: Soaked) -> None:
    """What one run showed, in lines for people."""
    first, last = soaked.samples[0], soaked.samples[-1]
    late_ms = 1e3 * percentile((outcome.late_s for outcome in soaked.outcomes), 0.99)
    p99_ms = 1e3 * percentile((outcome.latency_s for outcome in soaked.outcomes), 0.99)
    by_status = sorted(Counter(outcome.status for outcome in soaked.outcomes).items())
    statuses = ", ".join(f"{count:,} x {status or 'none'}" for status, count in by_status)
    say(
        f"{name}: {soaked.growth:+.2f} MiB a minute ({first.resident_mib:.1f} MiB after warm-up, "
        f"{last.resident_mib:.1f} {(last.at_s - first.at_s) / 60:.1f} min later), {soaked.more_files:+d} open files"
    )
    say(f"  {len(soaked.outcomes):,} requests: {statuses}; p99 {p99_ms:.0f} ms (sent late: p99 {late_ms:.0f} ms)")
    if soaked.failed:
        say(f"  5xx or no answer: {', '.join(f'{count} x {label}' for label, count in soaked.failed.items())}")


def say(line: str) -> None:
    """A line for whoever waits."""
    print(line, flush=True)  # noqa: T201 - progress and result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=100, help="requests a second (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        try:
            sys.exit(asyncio.run(main(given.minutes, given.rate, Path(temporary))))
        except KeyboardInterrupt:
            sys.exit(130)
