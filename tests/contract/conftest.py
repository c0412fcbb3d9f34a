"""A small valid bundle on disk, whose graph is never run here."""

import numpy as np
import pytest

from model.contract import bundle, bundle_content
from model.contract.golden import Golden, golden_to_bytes
from model.contract.manifest import Manifest
from model.contract.vocabulary import Vocabulary


@pytest.fixture
def files():
    """The files of a bundle of three items."""
    vocabulary = Vocabulary(["a", "b", "c"])
    example = Golden(
        items=("a",), exclude=(), candidates=(), k=2, expected_items=("b", "c"), expected_scores=(1.0, 0.5)
    )
    return {
        bundle.NETWORK: b"a graph",
        bundle.VOCABULARY: vocabulary.to_bytes(),
        bundle.COUNTS: bundle_content.encode_counts(np.array([3, 9, 3], dtype=np.int64)),
        bundle.GOLDEN: golden_to_bytes([example]),
        bundle.METADATA: bundle_content.encode_metadata(vocabulary, {"b": {"title": "B & é"}}),
    }


@pytest.fixture
def make_manifest(files):
    """A function that describes files, with fields changed at will."""

    def make(described=None, **changes):
        fields = {
            "name": "bert4rec",
            "version": "20260102T030405-0a1b2c3d",
            "item_count": 3,
            "max_length": 10,
            "width": 8,
            "layers": 1,
            "heads": 1,
            "trained_at": "2026-01-02T03:04:05Z",
            "last_event_at": None,
            "data_fingerprint": "f" * 64,
            "metrics": {"NDCG@10": 0.1},
            "inputs": ("item_ids", "lengths"),
            "files": {name: bundle.describe_file(content) for name, content in (described or files).items()},
        }
        return Manifest(**{**fields, **changes})

    return make


@pytest.fixture
def published(tmp_path, files, make_manifest):
    """A root folder with one published version."""
    manifest = make_manifest()
    bundle.write_bundle(tmp_path, manifest, files)
    bundle.point_current(tmp_path, manifest.version)
    return tmp_path
