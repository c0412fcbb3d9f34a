"""Versions of a bundle folder whose graphs are never run, for tests of who answers."""

from pathlib import Path

import numpy as np

from model.contract import bundle, bundle_content
from model.contract.golden import Golden, golden_to_bytes
from model.contract.manifest import Manifest
from model.contract.vocabulary import Vocabulary

ITEMS = ("a", "b", "c")


def write_version(root: Path, version: str, items: tuple[str, ...] = ITEMS) -> None:
    """Write a version that knows these items, each of which occurred ten times."""
    example = Golden(
        items=(items[0],), exclude=(), candidates=(), k=1, expected_items=(items[1],), expected_scores=(1.0,)
    )
    files = {
        bundle.NETWORK: b"a graph",
        bundle.VOCABULARY: Vocabulary(items).to_bytes(),
        bundle.COUNTS: bundle_content.encode_counts(np.full(len(items), 10, dtype=np.int64)),
        bundle.GOLDEN: golden_to_bytes([example]),
    }
    manifest = Manifest(
        name="bert4rec",
        version=version,
        item_count=len(items),
        max_length=10,
        width=8,
        layers=1,
        heads=1,
        trained_at="2026-01-02T03:04:05Z",
        last_event_at=None,
        data_fingerprint="f" * 64,
        metrics={"NDCG@10": 0.1},
        inputs=("item_ids", "lengths"),
        files={name: bundle.describe_file(content) for name, content in files.items()},
    )
    bundle.write_bundle(root, manifest, files)
