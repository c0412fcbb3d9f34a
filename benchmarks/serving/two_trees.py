"""Whether a change made plain answers slower: the service of two source trees under the same load, in turns.

`python -m benchmarks.serving.two_trees OLD NEW BUNDLE` with two checkouts of this repository. Each gets a store of its
own and the same histories. In each pair of turns both are asked, at 32 connections and at one; the ratio of a start is
the median over its pairs, since the machine drifts. How a process lies in memory alone makes it some per cent faster or
slower, so that both are started anew several times: the figures are medians over starts, with their range. `--python`
and `--old-bundle` name another environment or bundle for the old tree.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from benchmarks.harness.closed_loop import connect_tcp, drive_closed, judge_http
from benchmarks.harness.console import say
from benchmarks.harness.cpu_time import count_cpu
from benchmarks.harness.open_loop import encode_post, percentile
from benchmarks.harness.processes import find_url
from model.contract.bundle import VOCABULARY, locate_bundle
from service.embedded.server import EmbeddedStore
from service.system import parent_death

USERS: Final = 900
EVENTS: Final = 60
START_LIMIT_S: Final = 60.0
CONNECTIONS: Final = (32, 1)
QUESTIONS: Final = [
    encode_post("/recommend", b'{"user_id":"u%d","k":10}' % (7919 * number % USERS)) for number in range(USERS)
]


class Turn(NamedTuple):
    """What a service was like while it was asked."""

    cpu_us: float
    """Of the service without its store, for each answer."""
    rate: float
    p50_ms: float


@dataclass(frozen=True)
class Tree:
    """A service that runs the code of a checkout."""

    name: str
    process_id: int
    port: int

    def take_turn(self, connections: int, seconds: float) -> Turn:
        """Be asked for a while. Raises RuntimeError for a bad answer."""
        before_s = count_cpu(self.process_id)
        sample = drive_closed(
            connect_tcp(self.port), cycle(QUESTIONS), judge_http(b'"source":"model"'),
            connections=connections, seconds=seconds,
        )  # fmt: skip
        if sample.failed:
            raise RuntimeError(f"{self.name}: {sample.failed} answers were not the model's: is the machine busy?")
        cpu_us = 1e6 * (count_cpu(self.process_id) - before_s) / len(sample.latencies)
        return Turn(cpu_us, sample.rate, 1e3 * percentile(sample.latencies, 0.5))


@contextmanager
def serve(name: str, tree: Path, python: str, bundle: Path, folder: Path) -> Iterator[Tree]:
    """Start the service of a tree over a store of its own, with histories."""
    log = folder / "log"
    with EmbeddedStore(folder / "store") as store:
        command = [python, parent_death.__file__, str(os.getpid()), python, "-m", "service.cli"]
        options = ["--bundle", str(bundle), "--port", "0", "--redis-url", store.url, "--workers", "1"]
        environment = {**os.environ, "PYTHONPATH": str(tree), "NEXTITEM_JUDGE": "off"}
        with log.open("wb") as written:
            process = subprocess.Popen([*command, *options], cwd=tree, env=environment, stderr=written)  # noqa: S603
        try:
            url = _await_url(process, log)
            _store_histories(url, (locate_bundle(bundle) / VOCABULARY).read_text().split())
            yield Tree(name, process.pid, urlsplit(url).port or 0)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _await_url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    ends_s = time.monotonic() + START_LIMIT_S
    while not (url := find_url(log.read_bytes())):
        if process.poll() is not None or time.monotonic() > ends_s:
            raise RuntimeError(f"a service did not start: {log.read_text()[-500:]}")
        time.sleep(0.05)
    return url


def _store_histories(url: str, items: Sequence[str]) -> None:
    drawn = random.Random(1)  # noqa: S311 - no secret
    now_ms = int(time.time() * 1000) - 10 * EVENTS
    with httpx.Client(base_url=url, timeout=60) as client:
        for user in range(USERS):
            events = [
                {"user_id": f"u{user}", "item_id": drawn.choice(items), "timestamp": now_ms + number}
                for number in range(EVENTS)
            ]
            client.post("/events", json={"events": events}).raise_for_status()


def take_pairs(trees: Sequence[Tree], *, connections: int, pairs: int, seconds: float) -> list[tuple[Turn, Turn]]:
    """Turns of the old and the new tree, after one of each that does not count."""
    for tree in trees:
        tree.take_turn(connections, 2.0)
    taken = []
    for pair in range(pairs):
        turns = {tree.name: tree.take_turn(connections, seconds) for tree in (trees if pair % 2 else trees[::-1])}
        taken.append((turns["old"], turns["new"]))
    return taken


def compare(starts: Sequence[Sequence[tuple[Turn, Turn]]]) -> str:
    """The ratios new/old of what was measured: medians over starts of medians over their pairs, and the range."""
    said = []
    for index, name in enumerate(("CPU an answer", "answers a second", "p50")):
        ratios = sorted(median(new[index] / old[index] for old, new in pairs) for pairs in starts)
        old, new = (median(pair[side][index] for pairs in starts for pair in pairs) for side in (0, 1))
        said.append(f"{name} {median(ratios):.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}] ({old:.4g} -> {new:.4g})")
    return ", ".join(said)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and print a line for each number of connections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="checkout of the tree before the change")
    parser.add_argument("new", type=Path, help="checkout of the tree with it")
    parser.add_argument("bundle", type=Path, help="bundle that both serve")
    parser.add_argument("--old-bundle", type=Path, help="bundle of the old tree, if it reads no newer one")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the old tree")
    parser.add_argument("--starts", type=int, default=9, help="how often both are started")
    parser.add_argument("--pairs", type=int, default=7, help="of turns, in each start")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    options = parser.parse_args(arguments)
    bundle = options.bundle.resolve()
    services = (
        ("old", options.old.resolve(), options.python, (options.old_bundle or bundle).resolve()),
        ("new", options.new.resolve(), sys.executable, bundle),
    )
    starts: dict[int, list[list[tuple[Turn, Turn]]]] = {connections: [] for connections in CONNECTIONS}
    for start in range(options.starts):
        with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
            trees = []
            for name, tree, python, served in services if start % 2 else services[::-1]:
                folder = Path(scratch) / name
                folder.mkdir()
                trees.append(stack.enter_context(serve(name, tree, python, served, folder)))
            for connections, taken in starts.items():
                taken.append(take_pairs(trees, connections=connections, pairs=options.pairs, seconds=options.seconds))
                say(f"start {start + 1}, {connections} connections, new/old: {compare(taken[-1:])}")
    for connections, taken in starts.items():
        say(f"{connections} connections, {options.starts} starts, new/old: {compare(taken)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
