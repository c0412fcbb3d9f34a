"""Ranking inside the graph: whatever the scan, the same items as numpy sorts, the same scores, ties by index."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from model.contract.query import Question, stack_questions
from model.export.int8_scan import BLOCK, Quantized
from model.export.ranking import Items, append_ranking

SCANS = ["plain", "float32", "int8"]
V, D = 1500, 16
"""Twenty-four blocks, the last one not full."""


def make_items(draw, count=V, *, spread=1.0, bias=0.3):
    """Random items, some many times as long as others, as popular ones are."""
    lengths = np.exp(spread * draw.normal(size=(count + 2, 1)))
    table = (draw.normal(size=(count + 2, D)) * lengths).astype(np.float32)
    return Items(table, (bias * draw.normal(size=count)).astype(np.float32))


def open_ranking(items, scan):
    """A graph whose states are given, with the ranking alone."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["given"], ["state"])],
        "ranking",
        [helper.make_tensor_value_info("given", TensorProto.FLOAT, ["B", D])],
        [helper.make_tensor_value_info("state", TensorProto.FLOAT, ["B", D])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    append_ranking(model, items, scan)
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def ask(session, states, questions):
    """The graph's answer to questions that come with their states."""
    feed = stack_questions(questions, max_length=2, mask_index=len(states[0]))
    wanted = {name: feed[name] for name in ("exclude", "candidates", "k")}
    return session.run(["indexes", "scores"], {"given": states} | wanted)


def sort_all(items, state, question):
    """Indexes and float64 scores of what may be answered, best first, equal scores by index."""
    scores = items.table[1:-1].astype(np.float64) @ state.astype(np.float64) + items.bias
    allowed = np.full(len(scores), question.candidates is None)
    if question.candidates is not None:
        allowed[question.candidates - 1] = True
    allowed[question.exclude - 1] = False
    order = np.argsort(-scores, kind="stable")
    order = order[allowed[order]][: question.k]
    return order + 1, scores[order]


def draw_question(draw, count=V):
    """Some exclude much, some exclude nothing, some name few candidates, twice even, and some name none."""
    some = [None, None, draw.integers(1, count + 1, size=draw.integers(1, 6)), draw.integers(1, count + 1, size=300)]
    return Question(
        history=np.empty(0, dtype=np.int32),
        exclude=draw.integers(1, count + 1, size=draw.choice([0, 3, 200])).astype(np.int32),
        candidates=some[draw.integers(4)],
        k=int(draw.integers(1, 70)),
    )


def check(items, states, questions, answer):
    """Every row holds what numpy finds, then -inf; items change places only within float32's rounding."""
    for row, (state, question) in enumerate(zip(states, questions, strict=True)):
        expected, scores = sort_all(items, state, question)
        got, got_scores = answer[0][row][: question.k], answer[1][row][: question.k]
        kept = np.isfinite(got_scores)
        assert kept.tolist() == [True] * len(expected) + [False] * (question.k - len(expected))
        tolerance = 1e-5 * max(1.0, np.abs(scores).max(initial=0.0))
        np.testing.assert_allclose(got_scores[kept], scores, rtol=0, atol=tolerance)
        true = items.table[got[kept]].astype(np.float64) @ state.astype(np.float64) + items.bias[got[kept] - 1]
        np.testing.assert_allclose(true, scores, rtol=0, atol=tolerance)
        assert len(set(got[kept].tolist())) == len(expected)


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("bias", [0.0, 0.3, 30.0])
@pytest.mark.parametrize("scan", SCANS)
def test_answers_are_those_of_a_sort(scan, bias, spread):
    """A hundred questions, alone and in batches, items of like and of unlike length, without and with a great bias."""
    draw = np.random.default_rng(11)
    items = make_items(draw, spread=spread, bias=bias)
    session = open_ranking(items, scan)
    states = draw.normal(size=(100, D)).astype(np.float32)
    questions = [draw_question(draw) for _ in range(100)]
    for begin, end in [*((row, row + 1) for row in range(20)), *((row, row + 20) for row in range(20, 100, 20))]:
        check(items, states[begin:end], questions[begin:end], ask(session, states[begin:end], questions[begin:end]))


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("count", [1, 5, BLOCK - 2, BLOCK - 1, BLOCK, 3 * BLOCK])
def test_any_size_of_catalogue(scan, count):
    """Fewer items than a block, just a block, one more; and all items are asked for."""
    draw = np.random.default_rng(count)
    items = make_items(draw, count)
    states = draw.normal(size=(3, D)).astype(np.float32)
    questions = [draw_question(draw, count)._replace(k=count) for _ in range(3)]
    check(items, states, questions, ask(open_ranking(items, scan), states, questions))


@pytest.mark.parametrize("scan", SCANS)
def test_equal_scores_come_by_index(scan):
    """Small whole numbers tie everywhere, within blocks and between them; the lower index is the better one."""
    draw = np.random.default_rng(2)
    table = draw.integers(-2, 3, size=(V + 2, D)).astype(np.float32)
    items = Items(table, np.zeros(V, dtype=np.float32))
    session = open_ranking(items, scan)
    for k in (1, 2, 25, 400):
        state = draw.integers(-2, 3, size=(1, D)).astype(np.float32)
        question = draw_question(draw)._replace(k=k, candidates=None)
        indexes, scores = ask(session, state, [question])
        expected, expected_scores = sort_all(items, state[0], question)
        assert indexes[0].tolist() == expected.tolist()
        assert scores[0].tolist() == expected_scores.tolist()


@pytest.mark.parametrize("scan", SCANS)
def test_all_items_alike(scan):
    """With nothing to tell items apart, the first ones are answered."""
    items = Items(np.ones((V + 2, D), dtype=np.float32), np.zeros(V, dtype=np.float32))
    question = Question(np.empty(0, np.int32), np.array([2], np.int32), None, 5)
    state = np.ones((1, D), dtype=np.float32)
    indexes, _ = ask(open_ranking(items, scan), state, [question])
    assert indexes.tolist() == [[1, 3, 4, 5, 6]]


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("ranked", [0, 1, 5])
def test_rows_beyond_those_of_exclude_are_not_ranked(scan, ranked):
    """The first rows have the answers that they have alone; every row has its candidates' scores, excluded or not."""
    draw = np.random.default_rng(8)
    items = make_items(draw)
    session = open_ranking(items, scan)
    states = draw.normal(size=(5, D)).astype(np.float32)
    questions = [draw_question(draw)._replace(k=9) for _ in states]
    feed = stack_questions(questions, max_length=2, mask_index=V + 1)
    given = {name: feed[name] for name in ("candidates", "k")} | {"given": states, "exclude": feed["exclude"][:ranked]}
    indexes, scores, of_candidates = session.run(["indexes", "scores", "candidate_scores"], given)
    assert indexes.shape == scores.shape == (ranked, 9)
    check(items, states[:ranked], questions[:ranked], (indexes, scores))
    named = feed["candidates"]
    assert of_candidates.shape == named.shape
    wanted = (
        np.einsum("bcd,bd->bc", items.table[named].astype(np.float64), states)
        + np.pad(items.bias, 1, constant_values=-np.inf)[named]
    )
    real = (named > 0) & (named <= V)
    assert real.sum() > 0
    np.testing.assert_allclose(of_candidates[real], wanted[real], rtol=1e-5, atol=1e-4)
    assert np.isneginf(of_candidates[~real]).all()


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("count", [2, 5, 37, 63])
def test_equal_rows_have_equal_scores(scan, count):
    """Wherever items stand among those that are scored: else equal items would come in no order."""
    draw = np.random.default_rng(count)
    items = make_items(draw)
    items.table[1:-1], items.bias[:] = items.table[1], items.bias[0]
    state = draw.normal(size=(1, D)).astype(np.float32)
    named = draw.permutation(np.arange(1, V + 1))[:count].astype(np.int32)
    given = {"given": state, "exclude": np.zeros((1, 1), np.int32), "candidates": named[None], "k": np.array([count])}
    indexes, scores, of_candidates = open_ranking(items, scan).run(["indexes", "scores", "candidate_scores"], given)
    assert len(set(of_candidates[0].tolist())) == len(set(scores[0].tolist())) == 1
    assert indexes[0].tolist() == sorted(named.tolist())


@pytest.mark.parametrize("scan", SCANS)
def test_a_state_of_zeros_ranks_by_bias(scan):
    """No step is divided by zero, with a bias and without."""
    state = np.zeros((1, D), dtype=np.float32)
    for bias in (0.0, 1.0):
        items = make_items(np.random.default_rng(3), bias=bias)
        question = Question(np.empty(0, np.int32), np.empty(0, np.int32), None, 7)
        check(items, state, [question], ask(open_ranking(items, scan), state, [question]))


def test_the_bound_holds_and_says_something():
    """No score in whole numbers lies farther from the true one than the bound, which is no wide one."""
    draw = np.random.default_rng(4)
    items = make_items(draw, spread=0.5).pad(24 * BLOCK)
    quantized = Quantized.from_items(items.table, items.bias)
    assert quantized.items.dtype == np.int8
    real = np.isfinite(items.bias)
    for state in draw.normal(size=(50, D)):
        lifted = np.concatenate([state, np.full(4, quantized.lift)])
        step = np.abs(lifted).max() / 127
        near = np.rint(lifted / step) * step
        scores = near @ quantized.items.astype(np.float64) * np.repeat(quantized.steps, BLOCK)
        error = np.abs(scores - (items.table @ state + items.bias))[real]
        bound = np.linalg.norm(lifted) * quantized.errors + np.linalg.norm(lifted - near) * quantized.sizes
        assert (error <= np.repeat(bound, BLOCK)[real]).all()
        assert np.median(bound) < 0.2 * np.std(scores[real])


def multiply_saturating(states, items):
    """States (B, J) uint8 times items (J, V) int8, as x86 without VNNI computes it: by vpmaddubsw, then vpmaddwd.

    The products of two neighbouring columns are added in 16 bits, where what is too large is cut off.
    """
    J = len(items) + len(items) % 2
    wide = np.zeros((len(states), J), np.int64), np.zeros((J, items.shape[1]), np.int64)
    wide[0][:, : len(items)], wide[1][: len(items)] = states, items
    total = np.zeros((len(states), items.shape[1]), np.int64)
    for j in range(0, J, 2):
        pair = wide[0][:, [j]] * wide[1][j] + wide[0][:, [j + 1]] * wide[1][j + 1]
        total += np.clip(pair, np.iinfo(np.int16).min, np.iinfo(np.int16).max)
    return total


def test_the_emulation_saturates():
    """Two products of 255 and 127 are too much for 16 bits; one is not."""
    states, items = np.full((1, 2), 255, np.uint8), np.array([[127, 127], [127, 0]], np.int8)
    assert multiply_saturating(states, items).tolist() == [[32_767, 255 * 127]]


@pytest.mark.parametrize("length", [0, 1e-44, 1e-42, 1e-38])
def test_items_that_are_hardly_any_fit_too(length):
    """Below what float32 keeps all digits of, a step would be coarse: such items are 0, and their error says so."""
    items = make_items(np.random.default_rng(6), bias=0).pad(24 * BLOCK)
    quantized = Quantized.from_items(items.table * np.float32(length), np.where(np.isfinite(items.bias), 0, -np.inf))
    pairs = quantized.items.astype(np.int64).reshape(-1, 2, 24 * BLOCK)
    assert np.maximum(pairs, 0).sum(axis=1).max() <= 128
    assert np.isfinite(quantized.errors).all()


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("bias", [0.0, 0.3, 30.0])
@pytest.mark.parametrize("width", [15, 16])
def test_no_state_saturates(width, bias, spread):
    """Whatever whole numbers a state has, 16 bits hold every pair of products: no CPU computes another sum."""
    draw = np.random.default_rng(5)
    items = make_items(draw, spread=spread, bias=bias).pad(24 * BLOCK)
    quantized = Quantized.from_items(items.table[:, :width], items.bias)
    numbers = quantized.items.astype(np.int64)
    assert np.abs(numbers).max() > 60  # all eight bits but one are used
    worst = np.where(numbers[:, draw.integers(len(items.bias), size=200)] > 0, 255, 1).T  # meets an item at its largest
    drawn = draw.integers(1, 256, size=(50, len(numbers)))
    for states in (worst, 256 - worst, drawn, np.full((1, len(numbers)), 255)):
        np.testing.assert_array_equal(multiply_saturating(states, numbers), states @ numbers)
