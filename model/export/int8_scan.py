"""Items in whole numbers of 8 bits, and how far a score that they give can lie from the true one.

A table row w with its bias becomes w', a state h becomes h', so that the score is w' h'. Stored are whole numbers times
a step: W = step of the block x int8, and at run time H = step of the row x uint8 with zero point 128. Then

    w' h' - W H = (w' - W) h' + W (h' - H),    |w' h' - W H| <= |w' - W| |h'| + |W| |h' - H|    (Cauchy-Schwarz)

with |w' - W| and |W| at most what they are in the item's block, known at export, and |h'| and |h' - H| measured at run
time. The bound is widened by what float32 rounds.

W H is exact in whole numbers on every CPU. On x86 without VNNI, ONNX Runtime's kernels add the products of each two
neighbouring columns in 16 bits, where too large a sum is cut off. States reach 255 as uint8, so that the sum stays
within 16 bits where neighbours of one sign come to 128 at most: 255 x 128 = 32,640. The steps of the blocks see to it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from model.contract.allowed import BLOCK
from model.export.nodes import Nodes

LIFT = 1 << 29
"""Above any score in whole numbers: what is excluded has -LIFT, or LIFT less than it had, or both. Three of it fit into
32 bits, and half of it tells scores from others."""

_LEVELS = 127
"""Of states, and what two neighbouring columns of one sign come to before rounding, which adds 1 at most."""
_ZERO = 128
_BIAS_COLUMNS = 4
"""The bias is spread over as many columns, entries at most half of the table's largest, since they are neighbours of
one sign; kernels take columns by four."""


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
    def from_items(cls, table: NDArray[np.float32], bias: NDArray[np.float32]) -> "Quantized":
        """Take a table (V', D) and a bias (V'), -inf at what is no item; V' is a multiple of 64.

        Raises ValueError for a table so wide, of 16,000 columns, that a score could come near LIFT.
        """
        if _ZERO * _ZERO * (table.shape[1] + _BIAS_COLUMNS) >= LIFT // 2:
            raise ValueError("a table too wide to be scanned in whole numbers")
        real = np.isfinite(bias)
        bias = np.where(real, bias, 0).astype(np.float32)
        largest = float(np.abs(table).max(initial=0.0)) or 1.0
        lift = float(np.abs(bias).max()) / (_BIAS_COLUMNS * largest / 2) or 1.0
        part = (bias / (_BIAS_COLUMNS * lift))[:, None]
        rows = np.concatenate([np.where(real[:, None], table, 0), *[part] * _BIAS_COLUMNS], axis=1)
        by_block = rows.reshape(-1, BLOCK, rows.shape[1])
        numbers = np.empty(by_block.shape, dtype=np.int8)
        steps, errors, sizes = (np.empty(len(by_block), dtype=np.float32) for _ in range(3))
        for number, block in enumerate(by_block):  # by itself: in float64 a large table would take eight times its size
            step = _sum_neighbours(block) / np.float32(_LEVELS)
            steps[number] = step = step if step >= np.finfo(np.float32).tiny else np.float32(1)  # below: all but 0
            numbers[number] = np.rint(block / step)
            near = numbers[number].astype(np.float64) * step
            errors[number] = np.linalg.norm(block - near, axis=1).max()
            sizes[number] = np.linalg.norm(near, axis=1).max()
        rounding = 4 * rows.shape[1] * np.finfo(np.float32).eps
        return cls(
            items=np.ascontiguousarray(numbers.reshape(rows.shape).T),
            steps=steps,
            errors=(1.001 * errors + rounding * sizes).astype(np.float32),
            sizes=(1.001 * sizes).astype(np.float32),
            lift=lift,
        )


def _sum_neighbours(rows: NDArray[np.float32]) -> np.float32:
    """The largest sum in size of columns 0 and 1, 2 and 3 .. of rows (64, J), where both have one sign, or of one."""
    pairs = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2))).reshape(len(rows), -1, 2)
    most: np.float32 = max(np.maximum(sign * pairs, 0).sum(axis=2).max() for sign in (1, -1))
    return most


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
    beside = nodes.constant("beside", [0, 0, 0, _BIAS_COLUMNS], np.int64)
    lifted = nodes.add("Pad", state, beside, nodes.constant("lift", items.lift, np.float32))  # h'
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


class Bounds(NamedTuple):
    """Names of (B, G) each: what a whole number of a block counts, and how far the score that it gives can be off."""

    step: str
    error: str


def bound_scores(nodes: Nodes, whole: Integers, items: Quantized) -> Bounds:
    """The bound of the module's head."""
    by_items = nodes.add("Mul", whole.size, nodes.constant("errors", items.errors))
    by_state = nodes.add("Mul", whole.error, nodes.constant("sizes", items.sizes))
    return Bounds(
        step=nodes.add("Mul", whole.step, nodes.constant("steps", items.steps)),
        error=nodes.add("Add", by_items, by_state),
    )


def choose_blocks(nodes: Nodes, best: str, bounds: Bounds) -> str:
    """The blocks (B, M), ascending, that can hold one of the k best items, given their best whole numbers (B, G)."""
    enough = nodes.add("Div", nodes.add("Add", "k", nodes.one(BLOCK - 1)), nodes.one(BLOCK))
    possible, near = _read(nodes, best, bounds.step)
    return _choose(nodes, possible, near, bounds.error, enough)


def choose_items(nodes: Nodes, chosen: str, blocks: str, bounds: Bounds) -> tuple[str, str]:
    """Which items (B, Q), ascending, of those in `blocks` (B, M) can be one of the k best; and which of the Q can.

    `chosen` (B, 64 M) are their whole numbers.
    """
    size = nodes.one(BLOCK)
    step, error = (
        nodes.add("Flatten", nodes.add("Expand", nodes.add("Unsqueeze", by_block, nodes.one(2)), size))
        for by_block in (nodes.add("GatherElements", bound, blocks, axis=1) for bound in bounds)
    )
    possible, near = _read(nodes, chosen, step)
    left = _choose(nodes, possible, near, error, "k")
    return left, nodes.add("GatherElements", possible, left, axis=1)


def _read(nodes: Nodes, numbers: str, step: str) -> tuple[str, str]:
    """Which whole numbers are scores, and the scores."""
    possible = nodes.add("Greater", numbers, nodes.constant("half_void", -LIFT // 2, np.int32))
    return possible, nodes.add("Mul", nodes.add("Cast", numbers, to=TensorProto.FLOAT), step)


def _choose(nodes: Nodes, possible: str, near: str, error: str, least: str) -> str:
    """The columns, ascending, whose upper bound reaches the k-th highest lower bound: `least` or more in each row.

    So many are taken as the row with the most of them needs. Fewer columns than k leave all of them.
    """
    never = nodes.constant("never", -np.inf, np.float32)
    lower = nodes.add("Where", possible, nodes.add("Sub", near, error), never)
    upper = nodes.add("Where", possible, nodes.add("Add", near, error), never)
    columns = nodes.add("Shape", near, start=1)
    floor = nodes.add("Gather", nodes.top(lower, nodes.add("Min", "k", columns))[0], nodes.one(-1), axis=1)
    floor = nodes.add("Where", nodes.add("Greater", "k", columns), never, floor)
    wanted = nodes.add("And", possible, nodes.add("GreaterOrEqual", upper, floor))
    counts = nodes.add("ReduceSum", nodes.add("Cast", wanted, to=TensorProto.INT64), nodes.one(1), keepdims=0)
    most = nodes.add("ReduceMax", nodes.add("Concat", counts, least, axis=0), nodes.one(0), keepdims=1)
    return nodes.sort(nodes.top(upper, most)[1])
