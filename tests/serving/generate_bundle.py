"""Writes the bundle beside it, which the service's tests serve without torch or onnx: `python generate_bundle.py`.

Twenty items and a network of two tables, small enough to be computed again in numpy, which makes the golden examples.
Every token of the history counts, by item, by place and by the history's length.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from model.contract import bundle, bundle_content
from model.contract.golden import Golden, golden_to_bytes
from model.contract.manifest import Manifest
from model.contract.sequence import encode_histories
from model.contract.vocabulary import Vocabulary
from model.export.ranking import Items, append_ranking

ROOT = Path(__file__).parent / "bundle"
VERSION = "20261121T101500-tiny"
MAX_LENGTH, WIDTH = 8, 4
ITEMS = (
    *(f"i{number:02d}" for number in range(1, 13)),
    "a/b",
    "x/history",
    "__proto__",
    "constructor",
    "100%",
    "%2F",
    "{07}:*",
    '<script>"&',
)
INPUTS = ("item_ids", "lengths", "exclude", "candidates", "k")


class Weights(NamedTuple):
    """`items` (V + 2, D), `positions` (N, D) and `bias` (V + 2), -inf at PAD and MASK."""

    items: NDArray[np.float32]
    positions: NDArray[np.float32]
    bias: NDArray[np.float32]


def draw_weights(item_count: int) -> Weights:
    """The same weights each time. The last two items are one: their scores are equal."""
    draw = np.random.default_rng(20261121)
    items = draw.normal(size=(item_count + 2, WIDTH)).astype(np.float32)
    items[item_count] = items[item_count - 1]
    bias = draw.normal(scale=0.1, size=item_count + 2).astype(np.float32)
    bias[item_count] = bias[item_count - 1]
    bias[[0, -1]] = -np.inf
    return Weights(items, draw.normal(size=(MAX_LENGTH, WIDTH)).astype(np.float32), bias)


def score(weights: Weights, history: NDArray[np.int32], mask_index: int) -> NDArray[np.float32]:
    """(V + 2) scores after one history of indexes, in numpy."""
    item_ids, _ = encode_histories([history], max_length=MAX_LENGTH, mask_index=mask_index)
    row = item_ids[0]
    hidden = np.tanh(weights.items[row] + weights.positions[-len(row) :]).sum(axis=0) / np.float32(len(row))
    return hidden @ weights.items.T + weights.bias


def answer(
    weights: Weights, vocabulary: Vocabulary, items: list[str], *, exclude: list[str], candidates: list[str], k: int
) -> Golden:
    """One question with numpy's answer."""
    scores = score(weights, vocabulary.encode_known(items), vocabulary.mask_index)
    scores[vocabulary.encode_known(exclude)] = -np.inf
    if candidates:
        rest = np.setdiff1d(np.arange(len(scores)), vocabulary.encode_known(candidates))
        scores[rest] = -np.inf
    order = np.argsort(-scores, kind="stable")
    best = order[np.isfinite(scores[order])][:k]
    return Golden(
        items=tuple(items),
        exclude=tuple(exclude),
        candidates=tuple(candidates),
        k=k,
        expected_items=tuple(vocabulary.decode(best.tolist())),
        expected_scores=tuple(scores[best].tolist()),
    )


def make_golden(weights: Weights, vocabulary: Vocabulary) -> list[Golden]:
    """Questions of every kind."""
    longest = [*vocabulary.item_ids, *vocabulary.item_ids]
    return [
        answer(weights, vocabulary, [], exclude=[], candidates=[], k=5),
        answer(weights, vocabulary, ["i01"], exclude=[], candidates=[], k=20),
        answer(weights, vocabulary, ["i01", "i02", "a/b"], exclude=["i01", "i02", "a/b"], candidates=[], k=10),
        answer(weights, vocabulary, longest, exclude=["i03"], candidates=["i03", "i04", "100%", "nobody"], k=10),
    ]


def make_network(weights: Weights) -> bytes:
    """The same in ONNX, with the ranking of every bundle."""
    constants: dict[str, np.ndarray] = {
        "items": weights.items,
        "positions": weights.positions,
        "nil": np.array(0, dtype=np.float32),
        "first": np.array([0], dtype=np.int64),
        "zero": np.array(0, dtype=np.int32),
        "one": np.array(1, dtype=np.int32),
        "axis_1": np.array([1], dtype=np.int64),
        "end": np.array([np.iinfo(np.int64).max], dtype=np.int64),
    }
    nodes = []

    def add(op: str, inputs: str, output: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(op, inputs.split(), output.split(), **attributes))

    add("Gather", "items item_ids", "embedded")
    add("Shape", "item_ids", "T", start=1, end=2)
    add("Neg", "T", "minus_T")
    add("Slice", "positions minus_T end first", "places")
    add("Add", "embedded places", "sum")
    add("Tanh", "sum", "tokens")
    add("Cast", "T", "T_int", to=TensorProto.INT32)
    add("Squeeze", "T_int", "T_scalar")
    add("Range", "zero T_scalar one", "columns")
    add("Sub", "T_int lengths", "padding")
    add("Unsqueeze", "padding axis_1", "padding_column")
    add("GreaterOrEqual", "columns padding_column", "real")
    add("Unsqueeze", "real end_axis", "real_tokens")
    add("Where", "real_tokens tokens nil", "kept")
    add("ReduceSum", "kept axis_1", "total", keepdims=0)
    add("Cast", "lengths", "lengths_float", to=TensorProto.FLOAT)
    add("Unsqueeze", "lengths_float axis_1", "length_column")
    add("Div", "total length_column", "hidden")
    constants["end_axis"] = np.array([2], dtype=np.int64)
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("item_ids", TensorProto.INT32, ["B", "T"]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["B"]),
        ],
        [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["B", WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    append_ranking(network.graph, Items(weights.items, weights.bias[1:-1]), "plain")
    onnx.checker.check_model(network, full_check=True)
    return bytes(network.SerializeToString())


def make_files() -> tuple[Manifest, dict[str, bytes]]:
    """The bundle's manifest and files."""
    vocabulary = Vocabulary.from_items(ITEMS)
    weights = draw_weights(len(vocabulary))
    counts = np.array([(7 * index) % 10 + 1 for index in range(len(vocabulary))], dtype=np.int64)
    titles = {item_id: {"title": f"Title of {item_id}", "year": 2000 + len(item_id)} for item_id in ITEMS[:-1]}
    files = {
        bundle.NETWORK: make_network(weights),
        bundle.VOCABULARY: vocabulary.to_bytes(),
        bundle.COUNTS: bundle_content.encode_counts(counts),
        bundle.GOLDEN: golden_to_bytes(make_golden(weights, vocabulary)),
        bundle.METADATA: bundle_content.encode_metadata(vocabulary, titles),
    }
    manifest = Manifest(
        name="tiny",
        version=VERSION,
        item_count=len(vocabulary),
        max_length=MAX_LENGTH,
        width=WIDTH,
        layers=1,
        heads=1,
        trained_at="2026-11-21T10:15:00Z",
        last_event_at="2026-11-20T23:59:59Z",
        data_fingerprint=hashlib.sha256("".join(ITEMS).encode()).hexdigest(),
        metrics={"ndcg@10": 0.5},
        inputs=INPUTS,
        files={name: bundle.describe_file(content) for name, content in files.items()},
    )
    return manifest, files


if __name__ == "__main__":
    made, contents = make_files()
    bundle.write_bundle(ROOT, made, contents)
    bundle.point_current(ROOT, made.version)
