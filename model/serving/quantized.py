"""Items in whole numbers of 8 bits, and how far a score that they give can lie from the true one.

A table row w with its bias becomes w', a state h becomes h', so that the score is w' h'. Stored are whole numbers times
a step: W = step of the block x int8, and at run time H = step of the row x uint8 with zero point 128. Then

    w' h' - W H = (w' - W) h' + W (h' - H),    |w' h' - W H| <= |w' - W| |h'| + |W| |h' - H|    (Cauchy-Schwarz)

with |w' - W| and |W| at most what they are in the item's block, known at export, and |h'| and |h' - H| measured at run
time. W H is exact in whole numbers. The bound is widened by what float32 rounds.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from model.serving.nodes import Nodes

NEVER = np.iinfo(np.int32).min
"""What is excluded, among whole numbers."""

_LEVELS = 127
_ZERO = 128
_BIAS_COLUMNS = 4
"""The bias is spread over as many columns, whose entries shall not exceed the others'; kernels take columns by four."""


@dataclass(frozen=True)
class Quantized:
    """V' items in G blocks, J columns: `items` (J, V') int8, by block `steps`, `errors` |w' - W| and `sizes` |W| (G).

    `lift` is what the state has in each of the bias's columns.
    """

    items: NDArray[np.int8]
    steps: NDArray[np.float32]
    errors: NDArray[np.float32]
    sizes: NDArray[np.float32]
    lift: float

    @classmethod
    def from_items(cls, table: NDArray[np.float32], bias: NDArray[np.float32], block: int) -> "Quantized":
        """Take a table (V', D) and a bias (V'), -inf at what is no item; V' is a multiple of `block`."""
        real = np.isfinite(bias)
        bias = np.where(real, bias, 0).astype(np.float32)
        largest = float(np.abs(table).max(initial=0.0)) or 1.0
        lift = float(np.abs(bias).max()) / (_BIAS_COLUMNS * largest) or 1.0
        part = (bias / (_BIAS_COLUMNS * lift))[:, None]
        rows = np.concatenate([np.where(real[:, None], table, 0), *[part] * _BIAS_COLUMNS], axis=1)
        by_block = rows.reshape(-1, block, rows.shape[1])
        steps = np.abs(by_block).max(axis=(1, 2)) / np.float32(_LEVELS)
        steps = np.where(steps > 0, steps, np.float32(1.0))
        numbers = np.clip(np.rint(by_block / steps[:, None, None]), -_LEVELS, _LEVELS).astype(np.int8)
        errors, sizes = np.empty_like(steps), np.empty_like(steps)
        for number, step in enumerate(
            steps
        ):  # block by block: in float64 a large table would take eight times its size
            near = numbers[number].astype(np.float64) * step
            errors[number] = np.linalg.norm(by_block[number] - near, axis=1).max()
            sizes[number] = np.linalg.norm(near, axis=1).max()
        rounding = 4 * rows.shape[1] * np.finfo(np.float32).eps
        return cls(
            items=np.ascontiguousarray(numbers.reshape(rows.shape).T),
            steps=steps,
            errors=1.001 * errors + np.float32(rounding) * sizes,
            sizes=np.float32(1.001) * sizes,
            lift=lift,
        )


class Integers(NamedTuple):
    """Names of `scores` (B, V') in whole numbers, and of what is known of the states (B, 1).

    That is their `step`, their `size` |h'| and their `error` |h' - H|.
    """

    scores: str
    step: str
    size: str
    error: str


def scan_integers(nodes: Nodes, state: str, items: Quantized) -> Integers:
    """Score all items by states (B, D) in whole numbers."""
    rows = nodes.add("Concat", nodes.add("Shape", state, end=1), nodes.one(1), axis=0)
    lift = nodes.constant("lift", np.full((1, _BIAS_COLUMNS), items.lift), np.float32)
    lifted = nodes.add("Concat", state, nodes.add("Expand", lift, rows), axis=1)  # h'
    largest = nodes.add("ReduceMax", nodes.add("Abs", lifted), nodes.one(1), keepdims=1)
    step = nodes.add("Div", largest, nodes.constant("levels", _LEVELS, np.float32))
    numbers = nodes.add("Round", nodes.add("Div", lifted, step))
    near = nodes.add("Mul", numbers, step)
    shifted = nodes.add("Add", numbers, nodes.constant("shift", _ZERO, np.float32))
    whole = nodes.add("Cast", shifted, to=TensorProto.UINT8)
    zero = nodes.constant("zero", _ZERO, np.uint8)
    return Integers(
        scores=nodes.add("MatMulInteger", whole, nodes.constant("whole_items", items.items), zero),
        step=step,
        size=nodes.add("ReduceL2", lifted, nodes.one(1), keepdims=1),
        error=nodes.add("ReduceL2", nodes.add("Sub", lifted, near), nodes.one(1), keepdims=1),
    )


def choose_blocks(nodes: Nodes, best: str, whole: Integers, items: Quantized) -> str:
    """The blocks (B, M) that can hold one of the k best items, given the best whole number of each block (B, G).

    k blocks hold an item of at least the k-th highest lower bound. A block whose upper bound is below that has none.
    M is what the row with the most of them needs, and enough for k items.
    """
    possible = nodes.add("Greater", best, nodes.constant("void", NEVER, np.int32))
    steps = nodes.add("Mul", whole.step, nodes.constant("steps", items.steps))
    near = nodes.add("Mul", nodes.add("Cast", best, to=TensorProto.FLOAT), steps)
    by_items = nodes.add("Mul", whole.size, nodes.constant("errors", items.errors))
    by_state = nodes.add("Mul", whole.error, nodes.constant("sizes", items.sizes))
    bound = nodes.add("Add", by_items, by_state)
    never = nodes.constant("never", -np.inf, np.float32)
    lower = nodes.add("Where", possible, nodes.add("Sub", near, bound), never)
    upper = nodes.add("Where", possible, nodes.add("Add", near, bound), never)

    lowest, _ = nodes.top(lower, nodes.add("Min", "k", nodes.one(len(items.steps))))
    floor = nodes.add("Gather", lowest, nodes.one(-1), axis=1)
    wanted = nodes.add("And", possible, nodes.add("GreaterOrEqual", upper, floor))
    counts = nodes.add("ReduceSum", nodes.add("Cast", wanted, to=TensorProto.INT64), nodes.one(1), keepdims=0)
    most = nodes.add("ReduceMax", counts, nodes.one(0), keepdims=1)
    size = items.items.shape[1] // len(items.steps)
    least = nodes.add("Div", nodes.add("Add", "k", nodes.one(size - 1)), nodes.one(size))
    _, blocks = nodes.top(upper, nodes.add("Max", most, least))
    return blocks
