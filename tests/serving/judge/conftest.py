"""A bundle folder with two versions, and a judge that runs in the test's process."""

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.contract import bundle_content
from model.contract.bundle import COUNTS, GOLDEN, MANIFEST, VOCABULARY, describe_file, locate_bundle, point_current
from model.contract.deployment.changes import set_candidate
from model.contract.deployment.live_scores import read_live_scores
from model.contract.deployment.live_sums import LiveScores
from model.contract.deployment.writer import change_deployment
from service.judge.attribution import Attribution
from service.judge.champion_guard import ChampionGuard
from service.judge.judge import Judge
from service.judge.log_reader import LogReader
from service.judge.models import JudgedModels
from service.judge.trial_keeper import TrialKeeper
from service.judge.user_cap import UserCap
from service.judge.worker_counts import count_failing, observe_workers
from service.store.connection import connect
from service.store.history import HistoryStore

BUNDLE = Path(__file__).parents[1] / "bundle"
CHAMPION = "20261121T101500-tiny"
CANDIDATE = "20261122T101500-other"
UNCAPPED = 10**9


def write_other(root: Path, version: str = CANDIDATE) -> None:
    """A version that knows i05x instead of i05, and another popular list."""
    folder = shutil.copytree(locate_bundle(BUNDLE), root / version)
    changed = {
        VOCABULARY: (folder / VOCABULARY).read_bytes().replace(b"i05\n", b"i05x\n"),
        GOLDEN: (folder / GOLDEN).read_bytes().replace(b'"i05"', b'"i05x"'),
        COUNTS: bundle_content.encode_counts(np.arange(1, 21, dtype=np.int64)),
    }
    manifest = json.loads((folder / MANIFEST).read_bytes()) | {"version": version}
    for name, content in changed.items():
        (folder / name).write_bytes(content)
        described = describe_file(content)
        manifest["files"][name] = {"sha256": described.sha256, "bytes": described.bytes}
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A bundle folder with a champion, and another version."""
    root = tmp_path / "bundles"
    root.mkdir()
    shutil.copytree(locate_bundle(BUNDLE), root / CHAMPION)
    write_other(root)
    point_current(root, CHAMPION)
    return root


@pytest.fixture
def candidate(root: Path) -> str:
    """The other version, in shadow."""
    change_deployment(root, set_candidate(CANDIDATE), action="candidate", by="test")
    return CANDIDATE


@dataclass
class Bench:
    """A store's events and a judge of them, in one loop."""

    store: HistoryStore
    judge: Judge
    scores: LiveScores


@pytest.fixture
def with_judge(root: Path, store_url: str) -> Callable[..., Any]:
    """Run a scenario, an async function of a Bench, whose judge goes on from what live.json says."""

    def run(scenario: Callable[[Bench], Any], *, history_length: int = 1000, **options: Any) -> Any:
        async def main() -> Any:
            scores = read_live_scores(root) or LiveScores()
            client = connect(store_url, max_connections=2)
            reader = LogReader(client, scores.cursors)
            given: dict[str, Any] = {"rate": 10_000.0, "cap": UserCap(UNCAPPED), "patient": True} | options
            models = JudgedModels(root, scores)
            keeper = TrialKeeper(
                root, scores, models, observe=partial(observe_workers, client), dry_run=options.get("dry_run", False)
            )
            guard = ChampionGuard(
                root,
                scores,
                models,
                count_failing=partial(count_failing, client),
                dry_run=options.get("dry_run", False),
            )
            judge = Judge(
                root,
                scores,
                reader=reader,
                models=models,
                trial=keeper,
                guard=guard,
                attribution=Attribution(scores, within_hours=24.0),
                **given,
            )
            store = HistoryStore(connect(store_url), history_length=history_length, write_timeout_s=10.0)
            try:
                return await scenario(Bench(store, judge, scores))
            finally:
                await reader.close()
                await client.aclose()
                await store.close()

        return asyncio.run(main())

    return run
