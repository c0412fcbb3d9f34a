"""Bundles that must never answer: damaged in every way that a disk, a copy or a person has been seen to damage them."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.harness.bundles import seal
from model.contract.bundle import COUNTS, GOLDEN, MANIFEST, NETWORK, VOCABULARY

Damage = Callable[[Path, random.Random], None]
FILES: Final = (NETWORK, VOCABULARY, COUNTS, GOLDEN)


def flip_bits(folder: Path, draw: random.Random) -> None:
    """One byte of a file is another."""
    file = folder / draw.choice(FILES)
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def cut_short(folder: Path, draw: random.Random) -> None:
    """A copy that stopped half way."""
    file = folder / draw.choice(FILES)
    os.truncate(file, draw.randrange(file.stat().st_size))


def leave_out(folder: Path, draw: random.Random) -> None:
    """A file that was not copied yet."""
    (folder / draw.choice((*FILES, MANIFEST))).unlink()


def flip_network(folder: Path, draw: random.Random) -> None:
    """A damaged graph with a manifest that describes it: only loading or asking it shows the damage."""
    file = folder / NETWORK
    content = bytearray(file.read_bytes())
    for _ in range(20):
        content[draw.randrange(len(content))] ^= 0xFF
    file.write_bytes(content)
    seal(folder)


def swap_files(folder: Path, draw: random.Random) -> None:
    """Two files under each other's names, and a manifest that describes them so."""
    first, second = draw.sample(FILES, 2)
    one, other = (folder / first).read_bytes(), (folder / second).read_bytes()
    (folder / first).write_bytes(other)
    (folder / second).write_bytes(one)
    seal(folder)


def mix_vocabulary(folder: Path, _draw: random.Random) -> None:
    """The catalogue of another model: wrong items, which the golden examples know."""
    file = folder / VOCABULARY
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("".join(f"other-{line}\n" for line in lines), encoding="utf-8")
    seal(folder)


def falsify_golden(folder: Path, _draw: random.Random) -> None:
    """Examples that this network does not answer so."""
    file = folder / GOLDEN
    text = file.read_text(encoding="utf-8")
    document = json.loads(text)
    file.write_text(json.dumps(_raise_scores(document)), encoding="utf-8")
    seal(folder)


def answer_nan(folder: Path, _draw: random.Random) -> None:
    """A network whose weights are no numbers."""
    import onnx  # noqa: PLC0415 - here and below only: the service's own environment has none

    network = onnx.load(folder / NETWORK)
    for tensor in network.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            weights = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full_like(weights, np.nan), tensor.name))
    (folder / NETWORK).write_bytes(network.SerializeToString())
    seal(folder)


def eat_memory(folder: Path, _draw: random.Random) -> None:
    """A network that asks for a terabyte with every run."""
    import onnx  # noqa: PLC0415 - as above

    network = onnx.load(folder / NETWORK)
    graph, helper = network.graph, onnx.helper
    size = onnx.numpy_helper.from_array(np.array([1 << 38], dtype=np.int64), "eaten_size")
    graph.initializer.append(size)
    scores = next(node for node in graph.node if "scores" in node.output)
    scores.output[list(scores.output).index("scores")] = "scores_before"
    graph.node.extend(
        [
            helper.make_node("ConstantOfShape", ["eaten_size"], ["eaten"]),
            helper.make_node("ReduceSum", ["eaten"], ["eaten_sum"], keepdims=0),
            helper.make_node("Add", ["scores_before", "eaten_sum"], ["scores"]),
        ]
    )
    (folder / NETWORK).write_bytes(network.SerializeToString())
    seal(folder)


def _raise_scores(value: object) -> object:
    if isinstance(value, dict):
        return {name: _raise_scores(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_raise_scores(part) for part in value]
    return value + 0.5 if isinstance(value, float) else value


DAMAGES: Final[tuple[Damage, ...]] = (
    flip_bits,
    cut_short,
    leave_out,
    flip_network,
    swap_files,
    mix_vocabulary,
    falsify_golden,
)
"""What needs nothing but files."""
GRAPH_DAMAGES: Final[tuple[Damage, ...]] = (answer_nan, eat_memory)
"""What needs onnx."""
