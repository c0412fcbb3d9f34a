"""Many answers at once beside ONNX Runtime alone: POST /recommend/batch, and the lists of `recommend --users all`.

`python -m benchmarks.batch`: N = 50, 3,416 items, D = 64, random weights, full windows, k = 10, one thread each. Users
a second of CPU time and of the clock, in turns. Of each the quickest turn counts: other work on the machine only slows.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import torch
import uvloop
from fastapi import FastAPI
from numpy.typing import NDArray

from benchmarks.graph.steps import Case, draw_feed, draw_network
from model.contract.vocabulary import Vocabulary
from model.export import publish_bundle
from model.nets.network import SequenceNetwork
from service.app import create_app
from service.embedded import EmbeddedStore
from service.event import make_event
from service.live_model import load_model
from service.schemas import MAX_REQUESTS
from service.settings import Settings
from training.evaluation import NetworkScorer
from training.lists import rank_lists
from training.log import Log
from training.rankers import GraphRanker

CASE = Case(50, 3_416, 64)
USERS = 1_024
EVENTS = CASE.max_length - 1
ROWS = 32
"""Rows of a run of ONNX Runtime: what the service's batches hold by default."""
TURNS = 7
K = 10

Turn = Callable[[], bool]
"""Answers USERS users. Whether it counts: a machine that is too busy makes answers late, which the model then skips."""


class Pace(NamedTuple):
    """Users a second, of the quickest turn."""

    by_cpu: float
    by_clock: float


def main() -> int:
    """Measure all three in turns."""
    torch.set_num_threads(1)
    network = draw_network(CASE, "bert4rec")
    vocabulary = Vocabulary.from_items(f"i{number:04d}" for number in range(CASE.items))
    histories = np.random.default_rng(0).integers(1, CASE.items + 1, size=(USERS, EVENTS)).astype(np.int32)
    with tempfile.TemporaryDirectory(prefix="batch-") as folder:
        root = Path(folder)
        _publish(root / "bundles", network, vocabulary)
        with EmbeddedStore(root / "data") as store, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            app = create_app(Settings(bundle=root / "bundles", redis_url=store.url, threads=1, max_batch=ROWS))
            turns = {
                "ONNX Runtime": _prepare_engine(root / "bundles"),
                "/recommend/batch": _prepare_service(app, vocabulary, histories, runner),
                "recommend --users all": _prepare_lists(network, vocabulary, histories),
            }
            paces = _measure(turns)
            runner.run(app.state.service.recommender.close())
            runner.run(app.state.service.store.close())
    alone = paces["ONNX Runtime"]
    for name, pace in paces.items():
        shares = f"{pace.by_cpu / alone.by_cpu:5.0%} by CPU time, {pace.by_clock / alone.by_clock:5.0%} by the clock"
        print(f"{name:<24}{pace.by_cpu:8.0f} users/s of CPU,{pace.by_clock:8.0f} users/s: {shares}")  # noqa: T201 - the result
    return 0


def _measure(turns: dict[str, Turn]) -> dict[str, Pace]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    for _ in range(TURNS):
        for name, turn in turns.items():
            cpu_s, clock_s = time.process_time(), time.perf_counter()
            if turn():
                taken[name].append((time.process_time() - cpu_s, time.perf_counter() - clock_s))
    return {
        name: Pace(*(USERS / min(seconds) for seconds in zip(*times, strict=True))) for name, times in taken.items()
    }


def _publish(root: Path, network: SequenceNetwork, vocabulary: Vocabulary) -> None:
    publish_bundle(
        root,
        network,
        name="bert4rec",
        vocabulary=vocabulary,
        counts=np.arange(1, CASE.items + 1),
        trained_at=datetime.now(UTC),
        last_event_at=None,
        data_fingerprint="random",
        metrics={},
        histories=[[1, 2, 3]],
    )


def _prepare_engine(bundles: Path) -> Turn:
    """Runs of the published graph with their inputs ready, nothing before them and nothing after."""
    engine = load_model(bundles, provider="cpu", threads=1, max_batch=ROWS).engine
    feeds = [draw_feed(CASE, ROWS, seed=seed) for seed in range(USERS // ROWS)]

    def turn() -> bool:
        for feed in feeds:
            engine.rank(feed)
        return True

    return turn


def _prepare_service(
    app: FastAPI, vocabulary: Vocabulary, histories: NDArray[np.int32], runner: asyncio.Runner
) -> Turn:
    """Batches of the largest size, answered from histories in the store; the client is in the same process."""
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service", timeout=60)

    async def start() -> None:
        app.state.service.recommender.start()
        store = app.state.service.store
        for user, history in enumerate(histories):
            items = vocabulary.decode(history.tolist())
            events = [make_event(user_id=f"u{user}", item_id=item, event_type="view", now_ms=1) for item in items]
            await store.append(events)

    async def ask() -> bool:
        answered = 0
        for first in range(0, USERS, MAX_REQUESTS):
            users = range(first, first + MAX_REQUESTS)
            requests = [{"user_id": f"u{user}", "k": K, "timeout_ms": 2000} for user in users]
            response = await client.post("/recommend/batch", json={"requests": requests})
            answered += response.text.count('"source":"model"')
        return answered == USERS

    runner.run(start())
    return lambda: runner.run(ask())


def _prepare_lists(network: SequenceNetwork, vocabulary: Vocabulary, histories: NDArray[np.int32]) -> Turn:
    """What `nextitem-train recommend --users all` does once log and run are read."""
    users = [f"u{user:04d}" for user in range(USERS)]
    offsets = np.arange(USERS + 1) * EVENTS
    log = Log(user_ids=users, vocabulary=vocabulary, offsets=offsets, items=histories.ravel(), timestamps_ms=None)
    ranker = GraphRanker(NetworkScorer(network, log.histories))

    def turn() -> bool:
        return len(rank_lists(ranker, log, np.arange(USERS), K, on_users=lambda _count: None)) == USERS * K

    return turn


if __name__ == "__main__":
    sys.exit(main())
