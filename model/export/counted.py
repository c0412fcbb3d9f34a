"""Counts -> a graph with the contract of a network's: sums of rules by ONNX nodes, and the ranking of every graph.

There is no state to multiply with an item table: the table is one column of zeros, popularity is the bias, and what
the rules add is the `lift` that the plain scan knows (model/export/ranking.py). Numpy's answers
(model/contract/counted.py) are what the graph is checked against, and what the bundle's golden examples hold.

Shapes: B batch, T tokens, R newest items asked, M rules an item, V items.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from model.contract.counted import FLOOR, TIE, Counted
from model.contract.golden import Golden
from model.contract.vocabulary import Vocabulary
from model.export.parity import ask_each, check_parity
from model.export.ranking import Items, append_ranking

_IR_VERSION = 10
_PREFIX = "counted_"


def export_counted(counted: Counted, *, opset: int) -> bytes:
    """The ONNX file: inputs, outputs and optional inputs as in model/export/graph.py; always the scan `plain`."""
    V = counted.item_count
    nodes = _Nodes()
    rows = nodes.add("Shape", "item_ids", start=0, end=1)
    nodes.add("ConstantOfShape", nodes.add("Concat", rows, nodes.constant([1], np.int64), axis=0), output="state")
    outputs = [helper.make_tensor_value_info("state", TensorProto.FLOAT, ["B", 1])]
    if len(counted.rules.followers):
        _lift(nodes, counted, rows)
        outputs.append(helper.make_tensor_value_info("lift", TensorProto.FLOAT, ["B", V + 2]))
    graph = helper.make_graph(
        nodes.nodes,
        "counted",
        [
            helper.make_tensor_value_info("item_ids", TensorProto.INT32, ["B", "T"]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["B"]),
        ],
        outputs,
        nodes.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    append_ranking(model.graph, Items(np.zeros((V + 2, 1), dtype=np.float32), counted.prior), "plain")
    model.producer_name = "nextitem"
    written = bytes(model.SerializeToString())
    onnx.checker.check_model(written, full_check=True)
    return written


def export_checked(
    counted: Counted, vocabulary: Vocabulary, histories: Sequence[Sequence[int]], *, opset: int
) -> tuple[bytes, list[Golden]]:
    """The graph, and numpy's answers that it was checked against. Raises ExportError where they disagree."""
    graph = export_counted(counted, opset=opset)

    def score(items: Sequence[str]) -> NDArray[np.float64]:
        return counted.score(vocabulary.encode_known(items))

    examples = ask_each(score, vocabulary, [vocabulary.decode(history) for history in histories])
    check_parity(graph, examples, vocabulary, max_length=counted.max_length)
    return graph, examples


def _lift(nodes: "_Nodes", counted: Counted, rows: str) -> None:
    """Add `lift` (B, V + 2): what makes of the prior the score of each item that the newest items lead to."""
    rules, V = counted.rules, counted.item_count
    followers, weights = _tabulate(counted)
    R = rules.window
    newest = _read_newest(nodes, rows, R)
    share = nodes.add("Gather", nodes.constant(weights), newest, axis=0)  # (B, R, M)
    share = nodes.add("Mul", share, nodes.constant(rules.decay ** np.arange(R - 1, -1, -1.0)[:, None], np.float32))
    if counted.distinct:
        share = nodes.add("Mul", share, _find_last_of_each(nodes, newest, R))
    leads_to = nodes.add("Flatten", nodes.add("Gather", nodes.constant(followers), newest, axis=0), axis=1)
    nothing = nodes.add("ConstantOfShape", nodes.add("Concat", rows, nodes.constant([V + 2], np.int64), axis=0))
    sums = nodes.add("ScatterElements", nothing, leads_to, nodes.add("Flatten", share, axis=1), axis=1, reduction="add")
    logs = nodes.add("Log", nodes.add("Add", nodes.add("Div", sums, nodes.constant(FLOOR, np.float32)), _one(nodes)))
    above = np.ones(V + 2)
    above[1:-1] -= (1 - TIE) * counted.prior  # the bias of the ranking adds the whole prior again
    scores = nodes.add("Add", logs, nodes.constant(above, np.float32))
    zero = nodes.constant(0, np.float32)
    nodes.add("Where", nodes.add("Greater", sums, zero), scores, zero, output="lift")


def _read_newest(nodes: "_Nodes", rows: str, R: int) -> str:
    """The newest items before [mask], oldest first, PAD before them: (B, R), whatever T is."""
    shape = nodes.add("Concat", rows, nodes.constant([R], np.int64), axis=0)
    padding = nodes.add("Expand", nodes.constant([[0]], np.int32), shape)  # not Pad, which CUDA has not for int32
    joined = nodes.add("Concat", padding, "item_ids", axis=1)
    begin, end, axis = (nodes.constant([value], np.int64) for value in (-R - 1, -1, 1))
    return nodes.add("Slice", joined, begin, end, axis)


def _find_last_of_each(nodes: "_Nodes", newest: str, R: int) -> str:
    """1 at the newest place of each item, 0 at its older ones: (B, R, 1)."""
    one, two = (nodes.constant([axis], np.int64) for axis in (1, 2))
    equal = nodes.add("Equal", nodes.add("Unsqueeze", newest, two), nodes.add("Unsqueeze", newest, one))
    again = nodes.add("And", equal, nodes.constant(np.triu(np.ones((R, R), dtype=np.bool_), 1)))
    met_again = nodes.add("ReduceMax", nodes.add("Cast", again, to=TensorProto.FLOAT), two, keepdims=1)
    return nodes.add("Sub", _one(nodes), met_again)


def _one(nodes: "_Nodes") -> str:
    return nodes.constant(1, np.float32)


def _tabulate(counted: Counted) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Followers and weights, a row an item and as wide as the item with most rules: both (V + 2, M)."""
    starts = counted.rules.starts
    lengths = np.diff(starts)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(rows)) - starts[rows]
    shape = (counted.item_count + 2, int(lengths.max()))
    followers, weights = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.float32)
    followers[rows, places], weights[rows, places] = counted.rules.followers, counted.rules.weights
    return followers, weights


class _Nodes:
    """The nodes and constants of a graph before its ranking."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:  # noqa: ANN401 - ONNX's own
        """Append a node. Returns the name of its output, a new one unless given."""
        output = output or f"{_PREFIX}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, value: Any, dtype: type[np.generic] | None = None) -> str:  # noqa: ANN401 - whatever an array is
        """Append a constant. Returns its name."""
        name = f"{_PREFIX}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name
