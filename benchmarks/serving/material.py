"""What is served and asked: networks with random weights, in every system's form, and users with histories.

Networks and stores are written once into a cache folder.
"""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.harness.cases import Case, draw_lengths, draw_network, export_scores
from benchmarks.serving.systems.plain import ITEMS, SCORES
from model.contract.atomic_files import write_whole
from model.contract.bundle import CURRENT, point_current
from model.contract.vocabulary import Vocabulary
from model.export.graph import publish_bundle

FULL_SHARE = 10
"""One user in so many beside the others has a full window."""
KNOWN_ITEMS = 3_416
"""Histories hold these of every catalogue, wherever they stand in it, so that one store serves all catalogues."""
_IDS = 10**7
_PROOFS = 8

Histories = dict[str, dict[str, list[str]]]
"""Kind -> user -> item ids, oldest first. `mixed` are as long as in MovieLens-1M, `full` fill the window."""


def draw_items(count: int) -> list[str]:
    """Ids of so many items. Those of a small catalogue are in every larger one, anywhere in its order."""
    return [f"{number:07d}" for number in np.random.default_rng(1).permutation(_IDS)[:count]]


def draw_histories(case: Case, users: int) -> Histories:
    """`users` of mixed lengths, and a tenth as many with full windows: N - 1 items, since [mask] is the last one."""
    items = np.array(draw_items(min(KNOWN_ITEMS, case.items)))
    draw = np.random.default_rng(2)
    lengths = {
        "mixed": np.maximum(1, draw_lengths(case, users)),
        "full": np.full(max(1, users // FULL_SHARE), case.max_length - 1),
    }
    return {
        kind: {f"{kind}-{number}": draw.choice(items, size=length).tolist() for number, length in enumerate(found)}
        for kind, found in lengths.items()
    }


def write_network(case: Case, cache: Path, *, announce: Callable[[str], None]) -> Path:
    """The folder of a case: a bundle as published, and the plain export with its items. Written unless it is there."""
    folder = cache / f"{case.max_length}-{case.items}-{case.width}"
    if (folder / CURRENT).exists():
        return folder
    announce(f"{case}: writes the network")
    network = draw_network(case, "bert4rec")
    vocabulary = Vocabulary(sorted(draw_items(case.items)))
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / ITEMS, "\n".join([str(case.max_length), *vocabulary.item_ids]).encode())
    write_whole(folder / SCORES, export_scores(network).SerializeToString())
    histories = draw_histories(case, _PROOFS)["mixed"].values()
    bundle = publish_bundle(
        folder,
        network,
        name="bench",
        vocabulary=vocabulary,
        counts=np.ones(case.items, dtype=np.int64),
        trained_at=datetime(2026, 1, 1, tzinfo=UTC),
        last_event_at=None,
        data_fingerprint=hashlib.sha256(str(case).encode()).hexdigest(),
        metrics={},
        histories=[vocabulary.encode_known(history).tolist() for history in histories],
    )
    point_current(folder, bundle.name)
    return folder
