"""States -> the k best items: exclusion, candidates, masks and top-k inside the graph, so that k numbers leave it.

Three scans give the same items and scores:
  plain    every item is scored and masked, and one TopK reads them all
  float32  every item is scored; the best score of each block of 64 items says which k blocks can hold the k best items
  int8     items are scored in whole numbers, which reads a quarter of the bytes; blocks, then items, that their error
           bound leaves possible are scored again in float32 (model/export/int8_scan.py)

Rows beyond those that are `ranked` cost no scan: they ask for `candidate_scores` alone, the state times the rows of the
table that are asked for. Nothing of ONNX Runtime's could leave the scan out
(docs/decisions/0019-rows-that-are-not-ranked.md).

Masks have rows of their own, so that a run without masks has nothing to do
(docs/decisions/0020-which-items-may-be-answered.md). What is forbidden is out before blocks are chosen: only what may
be answered competes, so that what is said of the scans holds among it.

Why k blocks suffice: let item x stand outside the k blocks that come first by (best score, index). Each of them holds
an item that is better than x, or as good and of a lower index. So x is none of the k best by score and index.

Every node costs a lone run about a microsecond, whatever it does: what can be one node is one.

Shapes: B batch, R <= B rows that are ranked, D width, V items, K results, X excluded, C candidates, G blocks of items,
V' = 64 G > V + 1 columns, F masks of W = 8 G bytes, M blocks looked into, P = 64 M items, Q of them scored again.
"""

from typing import Literal, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from model.contract.allowed import BLOCK
from model.contract.query import ALLOWED, ALLOWED_ROWS, CANDIDATE_SCORES, RANKED, SCORED
from model.export.int8_scan import LIFT, Quantized, bound_scores, choose_blocks, choose_items, scan_integers
from model.export.nodes import Nodes
from model.export.signature import declare_signature

Scan = Literal["plain", "float32", "int8"]


class Items(NamedTuple):
    """What states are multiplied with: `table` (V + 2, D) with rows for PAD and MASK, and `bias` (V)."""

    table: NDArray[np.float32]
    bias: NDArray[np.float32]

    def pad(self) -> "Items":
        """Whole blocks of rows of the table, and a bias for each row, -inf at what is no item."""
        rows = -(-len(self.table) // BLOCK) * BLOCK
        bias = np.full(rows, -np.inf, dtype=np.float32)
        bias[1 : len(self.bias) + 1] = self.bias
        return Items(np.pad(self.table, ((0, rows - len(self.table)), (0, 0))), bias)


def append_ranking(graph: onnx.GraphProto, items: Items, scan: Scan) -> None:
    """Rank the items by the graph's output, states (B, D): the signature becomes that of model/export/graph.py.

    The scan `plain` adds a second output (B, V + 2), if there is one, to the scores.
    """
    state, *lift = (output.name for output in graph.output)
    declare_signature(graph, item_count=len(items.bias))
    nodes = Nodes(graph)
    items = items.pad()
    _score_candidates(nodes, state, items, lift)
    state, *lift = (nodes.add("Slice", name, nodes.one(0), RANKED) for name in (state, *lift))
    rank = {"plain": _rank_all, "float32": _rank_blocks, "int8": _rank_integers}[scan]
    rank(nodes, state, items, lift)


def _score_candidates(nodes: Nodes, state: str, items: Items, lift: list[str]) -> None:
    """What the scan gives the items of SCORED, -inf at PAD and MASK: excluded or not, in every row."""
    last = (CANDIDATE_SCORES,)
    scores = _score_again(nodes, state, items, SCORED, outputs=() if lift else last)
    for added in lift:
        lifted = nodes.add("GatherElements", added, SCORED, axis=1)
        nodes.add("Add", scores, nodes.add("Unsqueeze", lifted, nodes.one(2)), outputs=last)


def _rank_all(nodes: Nodes, state: str, items: Items, lift: list[str]) -> None:
    scores = _score(nodes, state, items)
    for added in lift:
        columns = int(np.isfinite(items.bias).sum()) + 2
        filled = nodes.constant("filled", [0, 0, 0, len(items.bias) - columns], np.int64)
        scores = nodes.add("Add", scores, nodes.add("Pad", added, filled))
    scores = _forbid(nodes, _restrict(nodes, scores, items), -np.inf, np.float32)
    nodes.add("TopK", scores, "k", outputs=("scores", "indexes"), axis=1)


def _rank_blocks(nodes: Nodes, state: str, items: Items, _lift: list[str]) -> None:
    scores = _forbid(nodes, _restrict(nodes, _score(nodes, state, items), items), -np.inf, np.float32)
    _, blocks = nodes.top(_find_best(nodes, scores, items), nodes.add("Min", "k", nodes.one(len(items.bias) // BLOCK)))
    positions = _list_positions(nodes, nodes.sort(blocks))
    _answer(nodes, nodes.add("GatherElements", scores, positions, axis=1), positions)


def _rank_integers(nodes: Nodes, state: str, items: Items, _lift: list[str]) -> None:
    quantized = Quantized.from_items(items.table, items.bias)
    whole = scan_integers(nodes, state, quantized)
    bounds = bound_scores(nodes, whole, quantized)
    # Candidates are raised above all others, and in rows that name some everything comes down again: what was not
    # raised is then as low as what is excluded, without a pass over all items.
    named, raised = _raise_named(nodes, whole.scores)
    outside = _exclude_what_is_no_item(nodes, items, whole.step)
    void = nodes.add("Expand", nodes.constant("void", -LIFT, np.int32), nodes.add("Shape", outside))
    scores = nodes.add("ScatterElements", named, outside, void, axis=1)
    scores = _forbid(nodes, scores, -LIFT, np.int32)
    best = nodes.add("Sub", _find_best(nodes, scores, items), raised)
    blocks = choose_blocks(nodes, best, bounds)
    positions = _list_positions(nodes, blocks)
    chosen = nodes.add("Sub", nodes.add("GatherElements", scores, positions, axis=1), raised)
    left, possible = choose_items(nodes, chosen, blocks, bounds)
    positions = nodes.add("GatherElements", positions, left, axis=1)
    scores = nodes.add("Squeeze", _score_again(nodes, state, items, positions), nodes.one(2))
    _answer(nodes, nodes.add("Where", possible, scores, nodes.constant("never", -np.inf, np.float32)), positions)


def _restrict(nodes: Nodes, scores: str, items: Items) -> str:
    """Scores (R, V') with -inf at what is excluded, and at all but the candidates in the rows that name some."""
    never = np.full(len(items.bias), -np.inf, dtype=np.float32)
    never[0] = 0  # what is added for an index: nothing for PAD
    unnamed, excluded = (
        nodes.add("Gather", nodes.constant("never_but_at_pad", never), indexes, axis=0)
        for indexes in (_find_last(nodes), "exclude")
    )
    named = nodes.add("GatherElements", scores, "candidates", axis=1)
    scores = nodes.add("ScatterElements", nodes.add("Add", scores, unnamed), "candidates", named, axis=1)
    return nodes.add("ScatterElements", scores, "exclude", excluded, axis=1, reduction="add")


def _raise_named(nodes: Nodes, scores: str) -> tuple[str, str]:
    """Whole numbers (R, V') with LIFT added to the candidates', and what was added in each row (R, 1), 0 to none."""
    raised = nodes.add("Mul", nodes.add("Sign", _find_last(nodes)), nodes.constant("lift_named", LIFT, np.int32))
    named = nodes.add("Add", nodes.add("GatherElements", scores, "candidates", axis=1), raised)
    return nodes.add("ScatterElements", scores, "candidates", named, axis=1), raised


def _find_last(nodes: Nodes) -> str:
    """The last of the candidates (R, 1): PAD where a row names none, since rows are aligned to the right."""
    return nodes.add("Gather", "candidates", nodes.one(-1), axis=1)


def _forbid(nodes: Nodes, scores: str, low: float, dtype: type[np.generic]) -> str:
    """Scores (R, V') with `low` added to what the masks forbid, eight items at a time."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    added = nodes.add("Gather", nodes.constant("by_byte", np.where(bits, 0, low), dtype), ALLOWED, axis=0)  # (F, W, 8)
    return nodes.add("ScatterND", scores, ALLOWED_ROWS, nodes.add("Flatten", added), reduction="add")


def _find_best(nodes: Nodes, scores: str, items: Items) -> str:
    """The best score of each block (R, G)."""
    shape = [0, len(items.bias) // BLOCK, BLOCK]  # not -1, which no rows at all would leave open
    by_block = nodes.add("Reshape", scores, nodes.constant("by_block", shape, np.int64))
    return nodes.add("ReduceMax", by_block, nodes.one(2), keepdims=0)


def _answer(nodes: Nodes, scores: str, positions: str) -> None:
    """The k best of `scores` (R, Q), which stand at `positions` (R, Q) in the table."""
    nodes.add("TopK", scores, "k", outputs=("scores", "rank_best"), axis=1)
    nodes.add("GatherElements", positions, "rank_best", outputs=("indexes",), axis=1)


def _score(nodes: Nodes, state: str, items: Items) -> str:
    table, bias = nodes.constant("table", items.table), nodes.constant("bias", items.bias)
    return nodes.add("Gemm", state, table, bias, transB=1)


def _score_again(nodes: Nodes, state: str, items: Items, positions: str, *, outputs: tuple[str, ...] = ()) -> str:
    """Scores (B, P, 1) of the items at `positions` (B, P), in float32: equal ones for equal rows of the table.

    Of a matrix and a lone column ONNX Runtime adds up some rows in another order than others, by their places. Of a
    matrix and a lone row that is transposed, which it takes for one operator, it does not: that goes the way of
    matrices.
    """
    rows = nodes.add("Gather", nodes.constant("table", items.table), positions, axis=0)  # (B, P, D)
    lone = nodes.add("Unsqueeze", state, nodes.one(1))  # (B, 1, D)
    products = nodes.add("MatMul", rows, nodes.add("Transpose", lone, perm=[0, 2, 1]))
    bias = nodes.add("Gather", nodes.constant("bias_column", items.bias[:, None]), positions, axis=0)
    return nodes.add("Add", products, bias, outputs=outputs)


def _exclude_what_is_no_item(nodes: Nodes, items: Items, column: str) -> str:
    """`exclude` with PAD, MASK and the rows that fill the last block: (R, X + some), rows as in `column` (R, 1)."""
    outside = nodes.constant("outside", np.flatnonzero(np.isneginf(items.bias))[None], np.int32)
    return nodes.add("Concat", "exclude", nodes.add("Expand", outside, nodes.add("Shape", column)), axis=1)


def _list_positions(nodes: Nodes, blocks: str) -> str:
    """The items (R, P) of ascending blocks (R, M), by index, so that equal scores come by index."""
    first = nodes.add("Mul", blocks, nodes.one(BLOCK))
    within = nodes.constant("within", np.arange(BLOCK), np.int64)
    return nodes.add("Flatten", nodes.add("Add", nodes.add("Unsqueeze", first, nodes.one(2)), within))
