"""The sizes that are measured, with networks and questions of those sizes; and the export that anybody would make."""

from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from model.contract.query import Question, stack_questions
from model.export.graph import export_states
from model.export.rewrite import LastState
from model.nets.network import SequenceNetwork
from model.nets.registry import make_network

K = 10
Feed = dict[str, NDArray[Any]]


class Case(NamedTuple):
    """A window of N items, a catalogue and a width."""

    max_length: int
    items: int
    width: int

    def __str__(self) -> str:
        return f"N={self.max_length}, {self.items:,} items, D={self.width}"


CASES = (Case(50, 3_416, 64), Case(200, 3_416, 64), Case(200, 26_744, 128), Case(50, 1_000_000, 64))


def read_case(text: str) -> Case:
    """N,items,D."""
    return Case(*map(int, text.split(",")))


def draw_network(case: Case, name: str) -> SequenceNetwork:
    """Random weights of the size of trained ones: scores spread by a few units, popular items a little longer."""
    torch.manual_seed(1)
    network = make_network(name, item_count=case.items, max_length=case.max_length, width=case.width)
    assert isinstance(network, SequenceNetwork)  # noqa: S101 - `--network` names no other
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.1)
        network.items.weight *= torch.exp(0.2 * torch.randn(len(network.items.weight), 1))
    return network.eval()


def draw_feed(case: Case, rows: int, *, lengths: NDArray[np.int64] | None = None, seed: int = 0) -> Feed:
    """The inputs of as many users whose histories are excluded; full windows unless lengths are given."""
    draw = np.random.default_rng(seed)
    full = np.full(rows, case.max_length - 1)
    histories = [
        draw.integers(1, case.items + 1, size=n).astype(np.int32) for n in (full if lengths is None else lengths)
    ]
    questions = [Question(history=history, exclude=history, candidates=None, k=K) for history in histories]
    return stack_questions(questions, max_length=case.max_length, mask_index=case.items + 1)


def draw_lengths(case: Case, rows: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Histories as in MovieLens-1M: half of them under 96 items, some far beyond the window."""
    draw = np.random.default_rng(seed)
    return np.minimum(case.max_length - 1, np.exp(draw.normal(np.log(96), 1.0, size=rows)).astype(np.int64))


def export_scores(network: SequenceNetwork) -> onnx.ModelProto:
    """The plain export: every item's score leaves the graph, (B, V + 2), -inf at PAD and MASK."""
    model = export_states(LastState(network), max_length=network.config.max_length)
    bias = np.pad(network.item_bias.detach().numpy(), 1, constant_values=-np.inf)
    model.graph.initializer.append(numpy_helper.from_array(bias, "bias"))
    model.graph.node.append(helper.make_node("Gemm", ["state", "network.items.weight", "bias"], ["scores"], transB=1))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["B", "V"]))
    return model
