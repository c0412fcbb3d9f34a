"""Mixed traffic for ten minutes, rude clients beside it, and how fast the service's memory grows meanwhile.

`python -m benchmarks.reliability.soak`, or `make soak`: ends with status 1 when memory grows by more than 1 MiB a
minute, open files add up, an answer is missing or a 5xx other than 503, or more than a tenth are 503, since then there
is no work to be watched; and when the control, the same service with a leak, does not grow: then the measurement is
blind. The first fifth is warm-up and does not count.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.harness.console import say
from benchmarks.harness.cpu_time import compare, look
from benchmarks.harness.open_loop import Outcome, fire
from benchmarks.harness.processes import ServiceProcess
from benchmarks.reliability.soak.answers import count_failed, count_refused, tabulate
from benchmarks.reliability.soak.memory import Sample, measure_growth, sample
from benchmarks.reliability.soak.rude_clients import disturb
from benchmarks.reliability.soak.traffic import KINDS, mix
from service.embedded.server import EmbeddedStore

BUNDLE = Path("tests/serving/bundle")
LIMIT_MIB_PER_MINUTE = 1.0
LIMIT_FILES = 110
"""The store's pool may grow to 64 connections, and 30 rude clients stay; what leaks comes with every request, or every
run of the archiver."""
LIMIT_REFUSED = 0.1
"""Share of requests. A store or a machine that is busy with something else refuses some, and says so by 503."""
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
    cores: Sequence[str]
    """What processes had of them."""

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


async def main(minutes: float, rate: float, folder: Path) -> int:
    """Both runs; the exit status."""
    (place := folder / "service").mkdir()
    soaked = await soak(place, seconds=60 * minutes, rate=rate)
    describe("Service", soaked)
    (place := folder / "control").mkdir()
    control = await soak(place, seconds=60 * minutes * CONTROL, rate=rate, module="benchmarks.reliability.soak.leaking")
    describe("Control, which keeps every request", control)
    well = (
        soaked.growth <= LIMIT_MIB_PER_MINUTE
        and soaked.more_files <= LIMIT_FILES
        and not count_failed(soaked.outcomes)
        and count_refused(soaked.outcomes) <= LIMIT_REFUSED * len(soaked.outcomes)
    )
    sees = control.growth > LIMIT_MIB_PER_MINUTE
    say(f"Service: {'well' if well else 'NOT WELL'}. Control: {'noticed' if sees else 'NOT NOTICED'}.")
    return 0 if well and sees else 1


async def soak(folder: Path, *, seconds: float, rate: float, module: str = "service.cli") -> Soaked:
    """Run a service over a store of its own under traffic and rude clients; the log is archived every minute."""
    with EmbeddedStore(folder / "data") as store:
        archive = ("--archive-dir", str(folder / "archive"), "--archive-minutes", "1")
        service = ServiceProcess(store.url, BUNDLE, folder / "service.log", *archive, module=module)
        await service.start()
        url = urlsplit(service.url)
        before = look(service.process_id), look()
        watching = asyncio.create_task(watch(service.process_id, seconds))
        disturbing = asyncio.create_task(disturb(str(url.hostname), url.port or 0, seconds=seconds))
        outcomes = await fire(str(url.hostname), url.port or 0, mix(rate=rate, seconds=seconds))
        samples = await watching
        await disturbing
        cores = [compare(*turns) for turns in zip(before, (look(service.process_id), look()), strict=True)]
        await service.stop()
    return Soaked([each for each in samples if each.at_s >= WARM_UP * seconds], outcomes, cores)


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
    say(
        f"{name}: {soaked.growth:+.2f} MiB a minute ({first.resident_mib:.1f} MiB after warm-up, "
        f"{last.resident_mib:.1f} {(last.at_s - first.at_s) / 60:.1f} min later), {soaked.more_files:+d} open files"
    )
    say(tabulate(soaked.outcomes, KINDS))
    service, asker = soaked.cores
    say(f"The service {service}; this process, which asks, {asker}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.soak", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=100, help="requests a second (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        try:
            sys.exit(asyncio.run(main(given.minutes, given.rate, Path(temporary))))
        except KeyboardInterrupt:
            sys.exit(130)
