"""What a GPU would run of the exported graphs, on paper: no copy between CPU and GPU stands in the way of a capture."""

import pytest
import torch
from onnx import TensorProto, helper

from benchmarks.graph.placement import place
from model.export.graph import OPSET, export_network
from model.nets.features import SideInformation
from model.nets.rules import SequentialRules


def make_side():
    """A column of items, and what is known of events."""
    codes = torch.arange(62, dtype=torch.int32)[:, None] % 4
    codes[-1] = 0
    return SideInformation(
        items=[(codes, 3)], events={"types": (), "values": (1.0, 3.0), "times": (60.0,)}, type_count=3
    )


@pytest.mark.parametrize(
    ("name", "scan", "switches"),
    [
        ("bert4rec", "float32", {"layers": 1}),
        ("bert4rec", "plain", {"layers": 1, "positions": "relative"}),
        ("gru4rec", "plain", {}),
        ("caser-history", "plain", {}),
        ("cbow", "plain", {}),
        ("fmc", "plain", {}),
        ("nova-sasrec", "plain", {"layers": 1, "side": make_side()}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_graphs_can_be_captured(make_small, name, scan, switches):
    """What stays on the CPU are a few nodes that count shapes, and nothing of theirs is copied."""
    found = place(export_network(make_small(name, **switches), scan=scan))
    assert (found.copies, found.control_flow) == ((), ())
    assert len(found.on_cpu) < 30


def test_rules_beside_a_network_can_be_captured(make_small):
    """Rules are looked up and added on the GPU as well."""
    network = make_small("sasrec", layers=1)
    network.rules = SequentialRules(network.item_count, 5)
    assert place(export_network(network)).can_be_captured


def test_whole_numbers_cannot(make_small):
    """How many items are scored again is found out on the way, so that nearly all of the graph stays on the CPU."""
    found = place(export_network(make_small("fmc"), scan="int8"))
    assert not found.can_be_captured
    assert any(node.startswith("MatMulInteger") for node in found.on_cpu)
    assert "item_ids" in found.copies


INPUTS = {"item_ids": ["B", "T"], "lengths": ["B"]}


def build(*nodes, branches=()):
    """A graph of `item_ids` (B, T) and `lengths` (B), with an `answer`."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in INPUTS.items()]
    graph = helper.make_graph(
        [helper.make_node(op, given, [made], made, **more) for op, given, made, more in (*nodes, *branches)],
        "graph",
        inputs,
        [helper.make_tensor_value_info("answer", TensorProto.INT64, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return model.SerializeToString()


def test_arithmetic_of_a_shape_with_an_input_is_found():
    """T - lengths goes to the CPU, as T is there, and its result must go back: the trap."""
    found = place(
        build(
            ("Shape", ["item_ids"], "T", {"start": 1}),
            ("Sub", ["T", "lengths"], "padding", {}),
            ("Abs", ["item_ids"], "positive", {}),
            ("Gather", ["positive", "padding"], "answer", {"axis": 1}),
        )
    )
    assert found.on_cpu == ("Sub padding",)
    assert found.copies == ("padding",)


def test_an_input_that_both_worlds_read_is_found():
    """`lengths` is a number of rows to one node, and what another adds up."""
    found = place(
        build(
            ("Expand", ["item_ids", "lengths"], "more", {}),
            ("ReduceSum", ["more"], "sum", {"keepdims": 0}),
            ("Add", ["sum", "lengths"], "answer", {}),
        )
    )
    assert found.copies == ("lengths",)


def test_unknown_operators_count_as_none_of_cudas():
    """An operator that nobody looked up stays on the CPU, so that this check fails and somebody does."""
    found = place(build(("BitwiseNot", ["item_ids"], "not", {}), ("Add", ["not", "lengths"], "answer", {})))
    assert found.on_cpu == ("BitwiseNot not",)
    assert found.copies == ("not",)


def test_branches_are_found():
    """A branch, which no graph of ours has, cannot be captured."""
    value = helper.make_tensor_value_info("value", TensorProto.INT64, None)
    branch = helper.make_graph([helper.make_node("Abs", ["lengths"], ["value"])], "branch", [], [value])
    other = helper.make_graph([helper.make_node("Neg", ["lengths"], ["value"])], "other", [], [value])
    found = place(
        build(
            ("ReduceMax", ["lengths"], "longest", {"keepdims": 0}),
            ("Cast", ["longest"], "any", {"to": TensorProto.BOOL}),
            branches=[("If", ["any"], "answer", {"then_branch": branch, "else_branch": other})],
        )
    )
    assert found.control_flow == ("answer",)
    assert not found.can_be_captured
