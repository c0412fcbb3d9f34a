"""Whether the judge is felt: the same load with the judge at its highest rate and without, in turns.

`python -m benchmarks.reliability.judged`, or `make judged`: a service over a store of its own, and a judge beside it
that is frozen (SIGSTOP) in every other turn, so that neither start nor memory counts. Three loads: questions and events
at a steady rate (p99), questions as fast as they are answered (throughput), and three times what a slow engine can
answer (goodput). Ends with status 1 when the judge costs more than 5 % of any of them, or scores nothing while it may.
Such a share asks for cores of one's own: `--limit` says another.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from shutil import copytree
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from benchmarks.harness.closed_loop import connect_tcp, drive_closed, judge_http
from benchmarks.harness.console import say
from benchmarks.harness.cpu_time import compare, count_cpu, look
from benchmarks.harness.open_loop import Outcome, Shot, encode_post, fire, percentile, plan
from benchmarks.harness.processes import ServiceProcess
from benchmarks.reliability.overload import ASK, BATCH, CAPACITY, RUN_S
from model.contract.bundle import VOCABULARY, locate_bundle
from model.contract.deployment.live_scores import read_live_scores
from service.embedded.server import EmbeddedStore
from service.system import parent_death

BUNDLE: Final = Path("tests/serving/bundle")
RATE: Final = 10_000
"""The judge's highest."""
ASKS, SENDS = 50.0, 100.0
"""A second, at the steady rate. So many events a second are sent beside the other loads, too."""
OVERLOAD: Final = 3.0
CONNECTIONS: Final = 8
LATE_S: Final = 2.0
"""A judge that goes on skips what waited for longer than a second: its first seconds are not measured."""
EVENTS_EACH: Final = 5
"""Of one user, so that a history is there to be ranked under; six trials an hour and user are the judge's limit."""


@dataclass
class Turns:
    """What one load came to, turn by turn. Higher is better, but for times."""

    name: str
    unit: str
    times: bool = False
    without: list[float] = field(default_factory=list)
    judged: list[float] = field(default_factory=list)
    trials: list[float] = field(default_factory=list)
    """That the judge scored a second, in its turns."""

    @property
    def cost(self) -> float:
        """By which share the judge makes it worse: the median over pairs of turns, which drift together."""
        worse = [b / a - 1 if self.times else 1 - b / a for a, b in zip(self.without, self.judged, strict=True)]
        return median(worse)

    def describe(self) -> str:
        """One line."""
        return (
            f"{self.name}: {median(self.without):.4g} {self.unit} without, {median(self.judged):.4g} with the judge; "
            f"worse by {100 * self.cost:.1f} % (median of {len(self.judged)} pairs), which scored "
            f"{median(self.trials):.0f} events a second"
        )


class JudgeProcess:
    """nextitem-serve judge, which can be frozen."""

    def __init__(self, redis_url: str, root: Path, log: Path) -> None:
        self._root = root
        self._command = [
            *(sys.executable, parent_death.__file__, str(os.getpid()), sys.executable, "-m", "service.cli", "judge"),
            *("--bundle", str(root), "--redis-url", redis_url, "--judge-rate", str(RATE)),
        ]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait for its first scores. Raises TimeoutError."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, stderr=log)
        async with asyncio.timeout(60):
            while read_live_scores(self._root) is None:  # noqa: ASYNC110 - another process tells nobody
                await asyncio.sleep(0.1)

    def freeze(self) -> None:
        """No step further."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End it."""
        self.thaw()
        self._signal(signal.SIGTERM)
        if self._process is not None:
            await self._process.wait()

    @property
    def trials(self) -> int:
        """Events that it has scored, as far as it has written."""
        scores = read_live_scores(self._root)
        return sum(sums.trials for sums in scores.totals.values()) if scores else 0

    @property
    def cpu_s(self) -> float:
        """CPU seconds that it has used."""
        return count_cpu(self._process.pid) if self._process is not None else 0.0

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@dataclass(frozen=True)
class Scene:
    """A service and a judge at work."""

    port: int
    judge: JudgeProcess
    events: Iterator[bytes]
    seconds: float
    rounds: int

    def send(self, seconds: float) -> Iterator[Shot]:
        """Events for a while."""
        planned = plan([b""], rate=SENDS, seconds=seconds, label="send", seed=1)
        return (Shot(shot.at_s, next(self.events), "send") for shot in planned)

    async def ask(self, rate: float, seconds: float) -> list[Outcome]:
        """Questions by a schedule, with events beside them; what came of the questions after LATE_S."""
        asks = plan([ASK], rate=rate, seconds=seconds, label="ask")
        outcomes = await fire("127.0.0.1", self.port, sorted([*asks, *self.send(seconds)], key=lambda shot: shot.at_s))
        return [each for each in outcomes if each.label == "ask" and each.at_s >= LATE_S]


@asynccontextmanager
async def serve(folder: Path, *, seconds: float, rounds: int, slow: bool = False) -> AsyncIterator[Scene]:
    """A service with one worker and a judge, over a store of their own. `slow`: with the engine of `make overload`."""
    root, items = await asyncio.to_thread(_make_root, folder)
    options, module = [], "service.cli"
    if slow:
        (folder / "fault").write_text(f"slow {RUN_S}")
        options, module = (
            ["--fault-file", str(folder / "fault"), "--max-batch", str(BATCH)],
            ("benchmarks.harness.faulty_engine"),
        )
    with EmbeddedStore(folder / "data") as store:
        service = ServiceProcess(
            store.url, root, folder / "service.log", "--drain-delay-s", "0", *options, module=module
        )
        judge = JudgeProcess(store.url, root, folder / "judge.log")
        await service.start()
        try:
            await judge.start()
            before = look(service.process_id)
            yield Scene(urlsplit(service.url).port or 0, judge, make_events(items), seconds, rounds)
            say(f"  The service {compare(before, look(service.process_id))}; the judge took {judge.cpu_s:.1f} CPU s")
        finally:
            await judge.stop()
            await service.stop()


def _make_root(folder: Path) -> tuple[Path, list[str]]:
    """A bundle folder that the judge may write, and the items that its model knows."""
    root = Path(copytree(BUNDLE, folder / "bundles"))
    return root, (locate_bundle(root) / VOCABULARY).read_text(encoding="utf-8").splitlines()


def make_events(items: list[str]) -> Iterator[bytes]:
    """Events of ever new users, each item new to its user: all of them can be scored."""
    for number in count():
        user, step = divmod(number, EVENTS_EACH)
        item = items[(user + step) % len(items)]
        yield encode_post("/events", f'{{"user_id":"j{user}","item_id":"{item}","event_id":"e{number}"}}'.encode())


async def measure_p99(scene: Scene) -> float:
    """The 99th percentile of answers at a steady rate, in milliseconds."""
    return 1e3 * percentile([each.latency_s for each in await scene.ask(ASKS, scene.seconds)], 0.99)


async def measure_throughput(scene: Scene) -> float:
    """Answers a second to eight clients that ask again at once."""
    sending = asyncio.create_task(fire("127.0.0.1", scene.port, scene.send(scene.seconds)))
    await asyncio.sleep(LATE_S)
    sample = await asyncio.to_thread(
        drive_closed, connect_tcp(scene.port), iter(lambda: ASK, None), judge_http(b'"source":"model"'),
        connections=CONNECTIONS, seconds=scene.seconds - LATE_S,
    )  # fmt: skip
    await sending
    return sample.rate


async def measure_goodput(scene: Scene) -> float:
    """Answers a second by the model, in time, where three times as many are asked."""
    asks = await scene.ask(OVERLOAD * CAPACITY, scene.seconds)
    return sum(each.source == "model" and not each.degraded for each in asks) / (scene.seconds - LATE_S)


async def alternate(scene: Scene, turns: Turns, measure: Callable[[Scene], Awaitable[float]]) -> None:
    """Without and with the judge, in turns; which comes first changes, too."""
    await scene.ask(ASKS, LATE_S)  # connections and caches get going
    for number in range(scene.rounds):
        for judged in (False, True) if number % 2 == 0 else (True, False):
            scene.judge.thaw() if judged else scene.judge.freeze()
            before = scene.judge.trials
            value = await measure(scene)
            if judged:
                turns.judged.append(value)
                await asyncio.sleep(5.5)  # it writes every five seconds
                turns.trials.append((scene.judge.trials - before) / scene.seconds)
            else:
                turns.without.append(value)
    say(turns.describe())


async def main(given: argparse.Namespace, folder: Path) -> int:
    """All loads; the exit status."""
    calm, full, flood = Turns("p99 of /recommend", "ms", times=True), Turns("Throughput", "/s"), Turns("Goodput", "/s")
    async with serve(folder / "swift", seconds=given.seconds, rounds=given.rounds) as scene:
        await alternate(scene, calm, measure_p99)
        await alternate(scene, full, measure_throughput)
    async with serve(folder / "slow", seconds=given.seconds, rounds=given.rounds, slow=True) as scene:
        await alternate(scene, flood, measure_goodput)
    kept = all(turns.cost <= given.limit for turns in (calm, full, flood)) and min(calm.trials) > 0
    say(f"Promised: at most {100 * given.limit:.0f} % worse, and scored events: {'kept' if kept else 'NOT KEPT'}")
    return 0 if kept else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.judged", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=20, help="how long each turn lasts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="turns with and without, of each (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=0.05, help="share that it may cost (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="judged-") as temporary:
        try:
            sys.exit(asyncio.run(main(arguments, Path(temporary))))
        except KeyboardInterrupt:
            sys.exit(130)
