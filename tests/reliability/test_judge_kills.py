"""Judge, store and archiver die in between: each accepted event is counted once, as a trial or as skipped."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from model.contract.bundle import locate_bundle, point_current, read_bundle
from model.contract.deployment.live_scores import read_live_scores
from model.contract.deployment.live_sums import LiveScores
from service.embedded.valkey import find_binary
from service.errors import StoreUnavailable
from service.store.connection import connect
from service.store.event import make_event
from service.store.history import HistoryStore
from service.store.redis_keys import PARTITIONS, tag_partition

KILLS = int(os.environ.get("JUDGE_KILLS", "4"))
"""How often something is killed; 20 for the whole proof."""
PATIENCE_S = 120.0
PORTION = 40
STORE_OPTIONS = ["--port", "0", "--appendonly", "yes", "--appendfsync", "always", "--save"]


class Victims:
    """The three processes, which are killed and started again."""

    def __init__(self, folder: Path, bundles: Path) -> None:
        self.socket = folder / "store.sock"
        (folder / "data").mkdir()
        command = [sys.executable, "-m", "service.cli"]
        own = ["--redis-url", f"unix://{self.socket}", "--log-level", "warning"]
        store = [str(find_binary()), *STORE_OPTIONS, "", "--unixsocket", str(self.socket)]
        self._commands = {
            "store": [*store, "--dir", str(folder / "data"), "--logfile", str(folder / "store.log")],
            "judge": [*command, "judge", *own, "--bundle", str(bundles), "--judge-rate", "2000"],
            "archiver": [*command, "archive", *own, "--archive-dir", str(folder / "archive")],
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start one; the store answers then."""
        self._processes[name] = subprocess.Popen(self._commands[name])
        deadline_s = time.monotonic() + PATIENCE_S
        while name == "store" and not self._answers():
            assert time.monotonic() < deadline_s
            time.sleep(0.02)

    def kill(self, name: str) -> None:
        """Kill one, and wait for its end."""
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait(PATIENCE_S)

    def close(self) -> None:
        """End them all."""
        for name in self._processes:
            self.kill(name)

    def _answers(self) -> bool:
        try:
            with Redis(unix_socket_path=str(self.socket)) as client:
                return bool(client.ping())
        except RedisError:
            return False


@pytest.fixture
def bundles(tmp_path: Path, bundle: Path) -> Path:
    """A bundle folder of the test's own."""
    root = tmp_path / "bundles"
    version = locate_bundle(bundle)
    shutil.copytree(version, root / version.name)
    point_current(root, version.name)
    return root


@pytest.fixture
def victims(folder: Path, bundles: Path) -> Iterator[Victims]:
    """Store, judge and archiver at work."""
    with ExitStack() as stack:
        victims = Victims(folder, bundles)
        stack.callback(victims.close)
        for name in ("store", "judge", "archiver"):
            victims.start(name)
        yield victims


def count_accepted(victims: Victims) -> list[int]:
    """How many events each partition's log was given."""
    with Redis(unix_socket_path=str(victims.socket)) as client:
        logs = [f"nextitem:log:{tag_partition(partition)}" for partition in range(PARTITIONS)]
        return [client.xinfo_stream(log)["entries-added"] if client.exists(log) else 0 for log in logs]


def read_scores(bundles: Path) -> LiveScores | None:
    """What the judge has written, in which places and sums agree."""
    scores = read_live_scores(bundles)
    if scores is not None:
        assert scores.events == sum(cursor.counted for cursor in scores.cursors.values())
    return scores


def wait_for(bundles: Path, events: int) -> LiveScores:
    """What the judge has written once it has counted so many events."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (scores := read_scores(bundles)) is None or not scores.cursors or scores.events < events:
        assert time.monotonic() < deadline_s, scores
        time.sleep(0.1)
    return scores


async def append(victims: Victims, events: list) -> None:
    """Store events, again and again until they are acknowledged."""
    store = HistoryStore(connect(f"unix://{victims.socket}"), write_timeout_s=10.0)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                await store.append(events)
            except StoreUnavailable:
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.05)
            else:
                return
    finally:
        await store.close()


@pytest.mark.timeout(600)
def test_every_event_counts_once(victims, bundles):
    """Trials and skipped events add up to the log's entries in each partition, and to the events that were sent."""
    draw = random.Random(17)  # noqa: S311 - to be the same each time
    items = read_bundle(bundles).vocabulary.item_ids
    sent = 0
    wait_for(bundles, 0)  # what leaves the log before the judge first reads it is not its business
    for _ in range(KILLS):
        for portion in range(5):
            events = [
                make_event(
                    user_id=f"u{draw.randrange(1000)}",
                    item_id=draw.choice(items),
                    event_type="view",
                    event_id=f"e{sent + number}",
                    now_ms=int(time.time() * 1000),
                )
                for number in range(PORTION)
            ]
            asyncio.run(append(victims, events))
            sent += len(events)
            read_scores(bundles)
            time.sleep(draw.uniform(0.0, 0.6))
            if portion == 2:
                name = draw.choice(["judge", "judge", "store", "archiver"])
                victims.kill(name)
                time.sleep(draw.uniform(0.0, 0.3))
                victims.start(name)
    accepted = count_accepted(victims)
    assert sum(accepted) == sent
    scores = wait_for(bundles, sent)
    assert [scores.cursors[partition].counted for partition in range(PARTITIONS)] == accepted
    [champion] = scores.totals.values()
    assert champion.trials > sent / 4
    assert champion.trials + sum(scores.skipped.values()) == sent
