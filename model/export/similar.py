"""similar.onnx: ranks the items whose rows in the item table point the same way as those of some others.

Rows are brought to length 1, so that a product is a cosine; the state is the mean of the rows that are asked about, and
the ranking is that of every graph (model/export/ranking.py), with its exclusion, candidates and int8 scan. So a score
is the mean of an item's cosines with them.

Shapes: B batch, T tokens, S candidates that are not ranked, D width, V items.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from model.contract.golden import Golden, golden_to_bytes
from model.contract.query import SCORED
from model.contract.similar import CANDIDATE_ROWS, MAX_ASKED, MAX_LENGTH, SIMILAR, SIMILAR_GOLDEN
from model.contract.vocabulary import Vocabulary
from model.export.parity import check_parity, sort_answer
from model.export.ranking import Items, Scan, append_ranking

_TABLE = "rank_table"
"""The ranking's own table, which the rows of the asked items come from, too: the file holds them once."""
_IR_VERSION = 10


def export_similar(rows: NDArray[np.float32], scan: Scan, *, opset: int) -> bytes:
    """The ONNX file for item rows (V + 2, D), those of PAD and MASK counting for nothing."""
    table = _normalise(rows)
    nodes = [
        helper.make_node("Gather", [_TABLE, "item_ids"], ["similar_rows"]),  # (B, T, D), 0 at PAD and MASK
        helper.make_node("ReduceSum", ["similar_rows", "similar_tokens"], ["similar_sum"], keepdims=0),
        helper.make_node("Sub", ["lengths", "similar_mask"], ["similar_items"]),  # [mask] ends every row
        helper.make_node("Max", ["similar_items", "similar_mask"], ["similar_divisor"]),
        helper.make_node("Unsqueeze", ["similar_divisor", "similar_tokens"], ["similar_column"]),
        helper.make_node("Cast", ["similar_column"], ["similar_count"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["similar_sum", "similar_count"], ["state"]),
    ]
    constants: dict[str, NDArray[Any]] = {
        "similar_tokens": np.array([1], dtype=np.int64),
        "similar_mask": np.array(1, dtype=np.int32),
    }
    graph = helper.make_graph(
        nodes,
        "similar",
        [
            helper.make_tensor_value_info("item_ids", TensorProto.INT32, ["B", "T"]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["B"]),
        ],
        [helper.make_tensor_value_info("state", TensorProto.FLOAT, ["B", table.shape[1]])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    append_ranking(model.graph, Items(table, np.zeros(len(table) - 2, dtype=np.float32)), scan)
    model.graph.node.append(helper.make_node("Gather", [_TABLE, SCORED], [CANDIDATE_ROWS]))
    model.graph.output.append(
        helper.make_tensor_value_info(CANDIDATE_ROWS, TensorProto.FLOAT, ["B", "S", table.shape[1]])
    )
    model.producer_name = "nextitem"
    written = bytes(model.SerializeToString())
    onnx.checker.check_model(written, full_check=True)
    return written


def make_similar_golden(
    rows: NDArray[np.float32], vocabulary: Vocabulary, histories: Sequence[Sequence[str]], *, seed: int = 0
) -> list[Golden]:
    """Numpy's answers: an item drawn for each history and the newest items of it, excluded and with candidates."""
    table = _normalise(rows)[1:-1]
    draw = np.random.default_rng(seed)
    catalogue = np.array(vocabulary.item_ids)

    def ask(items: Sequence[str], exclude: Sequence[str] = (), candidates: Sequence[str] = ()) -> Golden:
        asked = table[vocabulary.encode(items) - 1]
        return sort_answer(
            vocabulary, table @ asked.mean(axis=0), items=tuple(items), exclude=tuple(exclude),
            candidates=tuple(candidates),
        )  # fmt: skip

    examples = [ask(vocabulary.item_ids[:1])]
    for history in histories:
        [item] = map(str, draw.choice(catalogue, size=1))
        newest = history[-MAX_ASKED:] or [item]
        some = [str(one) for one in draw.choice(catalogue, size=min(20, len(catalogue)), replace=False)]
        examples += [ask([item]), ask(newest, newest), ask(newest, newest, some)]
    return examples


def make_similar_files(
    rows: NDArray[np.float32],
    vocabulary: Vocabulary,
    histories: Sequence[Sequence[str]],
    *,
    scan: Scan,
    opset: int,
    kept: int,
) -> dict[str, bytes]:
    """The two files of a bundle for item rows (V + 2, D), of whose examples `kept` go into it.

    Raises ExportError where the graph and numpy disagree about any.
    """
    graph = export_similar(rows, scan, opset=opset)
    examples = make_similar_golden(rows, vocabulary, histories)
    check_parity(graph, examples, vocabulary, max_length=MAX_LENGTH)
    return {SIMILAR: graph, SIMILAR_GOLDEN: golden_to_bytes(examples[:kept])}


def _normalise(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows (V + 2, D) of length 1; those of PAD and MASK, and what is shorter than a float32 can tell, are 0."""
    lengths = np.sqrt(np.einsum("vd,vd->v", rows, rows, dtype=np.float64))
    scales = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths >= np.finfo(np.float32).tiny)
    scales[[0, -1]] = 0
    table: NDArray[np.float32] = rows * scales.astype(np.float32)[:, None]
    return table
