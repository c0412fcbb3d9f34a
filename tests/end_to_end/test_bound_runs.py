"""Every kind of exported graph answers in the shapes of a GPU as in a batch's own, here on the CPU."""

import numpy as np
import pytest
import torch

from model.contract.event_inputs import ABSENT
from model.contract.query import INPUTS, Question, stack_questions
from model.export.graph import export_network
from model.nets.features import SideInformation
from model.nets.network import SequenceNetwork
from model.nets.registry import make_network
from model.nets.rules import SequentialRules
from service.inference.cuda_graphs import CudaGraphRunner, answers_match
from service.inference.engine import Engine, open_engine
from service.inference.shape_buckets import list_buckets

V, N = 300, 80


def make_side():
    """What is known of events, and one column of items."""
    codes = torch.arange(V + 2, dtype=torch.int32)[:, None] % 4
    codes[-1] = 0
    return SideInformation(
        items=[(codes, 3)], events={"types": (), "values": (1.0, 3.0), "times": (60.0,)}, type_count=3
    )


def make_rules():
    """Three random followers of every item."""
    rules = SequentialRules(V, 3)
    rules.followers[1 : V + 1] = torch.randint(1, V + 1, (V, 3), dtype=torch.int32)
    rules.weights[1 : V + 1] = torch.rand(V, 3)
    rules.strength.fill_(0.3)
    return rules


def draw_questions(draw, count, *, told):
    """Questions of every kind, many of them at an edge: empty, longer than the window, all excluded, many results."""
    for _ in range(count):
        n = int(draw.choice([0, 1, 30, 62, 63, 64, 79, 90]))
        yield Question(
            history=draw.integers(1, V + 1, size=n, dtype=np.int32),
            exclude=draw.permutation(V).astype(np.int32)[: int(draw.choice([0, 5, V - 3]))] + 1,
            candidates=draw.integers(1, V + 1, size=int(draw.choice([0, 1, 20])), dtype=np.int32)
            if draw.random() < 0.4
            else None,
            k=int(draw.choice([1, 10, 99, 100])),
            events={"types": draw.integers(4, size=n).astype(np.int32), "values": draw.random(n).astype(np.float32)}
            | {"times": 10**12 + np.cumsum(draw.integers(10**5, size=n))}
            if told
            else None,
        )


@pytest.mark.parametrize(
    ("name", "scan", "beside"),
    [
        ("bert4rec", "int8", None),
        ("bert4rec", "float32", None),
        ("sasrec", "plain", "rules"),
        ("nova-bert", "plain", "events"),
    ],
)
def test_exports_answer_alike_in_every_shape(name, scan, beside):
    """Forty batches, up to more rows than the largest shape has.

    An export takes seconds, and each layer more of them: two for the network that has nothing beside it.
    """
    torch.manual_seed(4)
    side = {"side": make_side()} if beside == "events" else {}
    layers = 1 if beside else 2
    network = make_network(name, item_count=V, max_length=N, width=16, layers=layers, heads=2, **side)
    assert isinstance(network, SequenceNetwork)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
    if beside == "rules":
        network.rules = make_rules()
    inputs = (*INPUTS, *network.event_inputs)
    assert set(inputs) == (set(INPUTS) | set(ABSENT) if beside == "events" else set(INPUTS))
    plain = open_engine(export_network(network, scan=scan), item_count=V, provider="cpu", threads=1, inputs=inputs)
    buckets = list_buckets(max_batch=6, max_length=N, item_count=V)
    runs = CudaGraphRunner(plain._session, buckets, inputs=inputs, device="cpu")
    graphs = Engine(plain._session, item_count=V, graphs=runs)

    runs.verify(plain.rank, item_count=V, inputs=inputs, tolerance=1e-4)
    draw = np.random.default_rng(6)
    for _ in range(40):
        questions = list(draw_questions(draw, int(draw.choice([1, 2, 4, 5, 6, 7, 13])), told=beside == "events"))
        feed = stack_questions(questions, max_length=N, mask_index=V + 1, inputs=inputs)
        assert answers_match(graphs.rank(feed), plain.rank(feed), tolerance=1e-4)
