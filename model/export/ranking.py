"""States -> the k best items: exclusion, candidates and top-k inside the graph, so that k numbers leave it, not V.

Three scans give the same items and scores:
  plain    every item is scored and masked, and one TopK reads them all
  float32  every item is scored; the best score of each block of 64 items says which k blocks can hold the k best items
  int8     items are scored in whole numbers, which reads a quarter of the bytes; blocks, then items, that their error
           bound leaves possible are scored again in float32 (model/export/int8_scan.py)

Rows beyond those of `exclude` are not ranked, and cost no scan: they ask for `candidate_scores` alone, the state times
the candidates' rows of the table. Nothing of ONNX Runtime's could leave the scan out
(docs/decisions/0019-rows-that-are-not-ranked.md).

Why k blocks suffice: let item x stand outside the k blocks that come first by (best score, index). Each of them holds
an item that is better than x, or as good and of a lower index. So x is none of the k best by score and index.

Shapes: B batch, R <= B rows that are ranked, D width, V items, K results, X excluded, C candidates, G blocks, M blocks
looked into, P = 64 M items, Q of them scored again.
"""

from typing import Literal, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from model.export.int8_scan import BLOCK, NEVER, Quantized, bound_scores, choose_blocks, choose_items, scan_integers
from model.export.nodes import Nodes

Scan = Literal["plain", "float32", "int8"]

_NAMED = "rank_named"
"""The candidates of the rows that are ranked (R, C)."""


class Items(NamedTuple):
    """What states are multiplied with: `table` (V + 2, D) with rows for PAD and MASK, and `bias` (V)."""

    table: NDArray[np.float32]
    bias: NDArray[np.float32]

    def pad(self, rows: int) -> "Items":
        """The table with as many rows, and a bias for each of them, -inf at what is no item."""
        bias = np.full(rows, -np.inf, dtype=np.float32)
        bias[1 : len(self.bias) + 1] = self.bias
        return Items(np.pad(self.table, ((0, rows - len(self.table)), (0, 0))), bias)


def append_ranking(graph: onnx.GraphProto, items: Items, scan: Scan) -> None:
    """Rank the items by the graph's output, states (B, D): the signature becomes that of model/export/graph.py.

    The scan `plain` adds a second output (B, V + 2), if there is one, to the scores.
    """
    state, *lift = (output.name for output in graph.output)
    _declare(graph)
    nodes = Nodes(graph)
    items = items.pad(len(items.table) if scan == "plain" else -(-len(items.table) // BLOCK) * BLOCK)
    _score_candidates(nodes, state, items, lift)
    rows = nodes.add("Shape", "exclude", end=1)
    _take_first(nodes, "candidates", rows, _NAMED)
    state, *lift = (_take_first(nodes, name, rows) for name in (state, *lift))
    if scan == "plain":
        _rank_all(nodes, state, items, lift)
    else:
        rank = _rank_blocks if scan == "float32" else _rank_integers
        rank(nodes, state, items)


def _declare(graph: onnx.GraphProto) -> None:
    del graph.output[:]
    graph.input.extend(
        [
            helper.make_tensor_value_info("exclude", TensorProto.INT32, ["R", "X"]),
            helper.make_tensor_value_info("candidates", TensorProto.INT32, ["B", "C"]),
            helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
        ]
    )
    graph.output.extend(
        [
            helper.make_tensor_value_info("indexes", TensorProto.INT64, ["R", "K"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["R", "K"]),
            helper.make_tensor_value_info("candidate_scores", TensorProto.FLOAT, ["B", "C"]),
        ]
    )


def _take_first(nodes: Nodes, values: str, rows: str, name: str = "") -> str:
    """The first `rows` of `values`."""
    return nodes.add("Slice", values, nodes.one(0), rows, outputs=(name,) if name else ())


def _score_candidates(nodes: Nodes, state: str, items: Items, lift: list[str]) -> None:
    """What the scan gives the candidates, -inf at PAD and MASK: excluded or not, in every row."""
    scores = _score_again(nodes, state, items, "candidates")
    for added in lift:
        scores = nodes.add("Add", scores, nodes.add("GatherElements", added, "candidates", axis=1))
    nodes.add("Identity", scores, outputs=("candidate_scores",))


def _rank_all(nodes: Nodes, state: str, items: Items, lift: list[str]) -> None:
    scores = _score(nodes, state, items)
    for added in lift:
        scores = nodes.add("Add", scores, added)
    never = nodes.constant("never", -np.inf, np.float32)
    kept = _exclude(nodes, scores, "exclude", never)
    allowed = nodes.add("Or", _name(nodes, scores), _unrestricted(nodes))
    ranked = nodes.add("Where", allowed, kept, never)
    nodes.add("TopK", ranked, "k", outputs=("scores", "indexes"), axis=1)


def _rank_blocks(nodes: Nodes, state: str, items: Items) -> None:
    never = nodes.constant("never", -np.inf, np.float32)
    scores = _exclude(nodes, _score(nodes, state, items), "exclude", never)
    best = _find_best(nodes, scores, items, never)
    _, blocks = nodes.top(best, nodes.add("Min", "k", nodes.one(len(items.bias) // BLOCK)))
    positions = _list_positions(nodes, nodes.sort(blocks))
    chosen = nodes.add(
        "Where", _allow(nodes, scores, positions), nodes.add("GatherElements", scores, positions, axis=1), never
    )
    _answer(nodes, chosen, positions)


def _rank_integers(nodes: Nodes, state: str, items: Items) -> None:
    never, void = nodes.constant("never", -np.inf, np.float32), nodes.constant("void", NEVER, np.int32)
    quantized = Quantized.from_items(items.table, items.bias)
    whole = scan_integers(nodes, state, quantized)
    scores = _exclude(nodes, whole.scores, _exclude_what_is_no_item(nodes, items), void)
    bounds = bound_scores(nodes, whole, quantized)
    blocks = choose_blocks(nodes, _find_best(nodes, scores, items, void), bounds)
    positions = _list_positions(nodes, blocks)
    chosen = nodes.add(
        "Where", _allow(nodes, scores, positions), nodes.add("GatherElements", scores, positions, axis=1), void
    )
    left, possible = choose_items(nodes, chosen, blocks, bounds)
    positions = nodes.add("GatherElements", positions, left, axis=1)
    _answer(nodes, nodes.add("Where", possible, _score_again(nodes, state, items, positions), never), positions)


def _find_best(nodes: Nodes, scores: str, items: Items, void: str) -> str:
    """The best score of each block (R, G), of candidates alone in the rows that name some."""
    shape = [0, len(items.bias) // BLOCK, BLOCK]  # not -1, which no rows at all would leave open
    by_block = nodes.add("Reshape", scores, nodes.constant("by_block", shape, np.int64))
    best = nodes.add("ReduceMax", by_block, nodes.one(2), keepdims=0)
    best = nodes.add("Where", _unrestricted(nodes), best, void)
    named = nodes.add("GatherElements", scores, _NAMED, axis=1)
    home = nodes.add("Div", _NAMED, nodes.constant("block", BLOCK, np.int32))
    return nodes.add("ScatterElements", best, home, named, axis=1, reduction="max")  # void at PAD: none is named


def _allow(nodes: Nodes, scores: str, positions: str) -> str:
    """Which of `positions` (R, P) the candidates allow."""
    named = nodes.add("GatherElements", _name(nodes, scores), positions, axis=1)
    return nodes.add("Or", named, _unrestricted(nodes))


def _answer(nodes: Nodes, scores: str, positions: str) -> None:
    """The k best of `scores` (R, Q), which stand at `positions` (R, Q) in the table."""
    nodes.add("TopK", scores, "k", outputs=("scores", "rank_best"), axis=1)
    nodes.add("GatherElements", positions, "rank_best", outputs=("indexes",), axis=1)


def _score(nodes: Nodes, state: str, items: Items) -> str:
    table, bias = nodes.constant("table", items.table), nodes.constant("bias", items.bias)
    return nodes.add("Gemm", state, table, bias, transB=1)


def _score_again(nodes: Nodes, state: str, items: Items, positions: str) -> str:
    """Scores (B, P) of the items at `positions` (B, P), in float32: equal ones for equal rows of the table.

    Of a matrix and a lone vector ONNX Runtime adds up some rows in another order than others, by their places. So the
    state stands there twice.
    """
    rows = nodes.add("Gather", nodes.constant("table", items.table), positions, axis=0)  # (B, P, D)
    column = nodes.add("Unsqueeze", state, nodes.one(2))
    products = nodes.add("MatMul", rows, nodes.add("Concat", column, column, axis=2))  # (B, P, 2)
    bias = nodes.add("Gather", nodes.constant("bias", items.bias), positions, axis=0)
    return nodes.add("Add", nodes.add("Gather", products, nodes.constant("first", 0, np.int64), axis=2), bias)


def _exclude(nodes: Nodes, scores: str, indexes: str, never: str) -> str:
    values = nodes.add("Expand", never, nodes.add("Shape", indexes))
    return nodes.add("ScatterElements", scores, indexes, values, axis=1)


def _exclude_what_is_no_item(nodes: Nodes, items: Items) -> str:
    """`exclude` with PAD, MASK and the rows that fill the last block: (R, X + some)."""
    outside = nodes.constant("outside", np.flatnonzero(np.isneginf(items.bias))[None], np.int32)
    rows = nodes.add("Concat", nodes.add("Shape", "exclude", end=1), nodes.one(1), axis=0)
    return nodes.add("Concat", "exclude", nodes.add("Expand", outside, rows), axis=1)


def _unrestricted(nodes: Nodes) -> str:
    """Which rows name no candidate (R, 1)."""
    highest = nodes.add("ReduceMax", _NAMED, nodes.one(1), keepdims=1)
    return nodes.add("Equal", highest, nodes.constant("pad", 0, np.int32))  # twice in a graph: ONNX Runtime merges them


def _name(nodes: Nodes, scores: str) -> str:
    """Where the candidates stand: as scores (R, -1), true at the named ones."""
    nowhere = nodes.fill(False, nodes.add("Shape", scores))
    everywhere = nodes.fill(True, nodes.add("Shape", _NAMED))
    return nodes.add("ScatterElements", nowhere, _NAMED, everywhere, axis=1)


def _list_positions(nodes: Nodes, blocks: str) -> str:
    """The items (R, P) of ascending blocks (R, M), by index, so that equal scores come by index."""
    first = nodes.add("Mul", blocks, nodes.one(BLOCK))
    within = nodes.constant("within", np.arange(BLOCK), np.int64)
    return nodes.add("Flatten", nodes.add("Add", nodes.add("Unsqueeze", first, nodes.one(2)), within))
