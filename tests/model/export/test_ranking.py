"""Ranking inside the graph: whatever the scan, the same items as numpy sorts, the same scores, ties by index."""

from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from model.contract.allowed import BLOCK, Allowed
from model.contract.query import ALLOWED, ALLOWED_ROWS, OPTIONAL, RANKED, SCORED, Question, stack_questions
from model.export.int8_scan import Quantized
from model.export.ranking import Items, append_ranking

SCANS = ["plain", "float32", "int8"]
V, D = 1500, 16
"""Twenty-four blocks, the last one not full."""


def make_items(draw, count=V, *, spread=1.0, bias=0.3):
    """Random items, some many times as long as others, as popular ones are."""
    lengths = np.exp(spread * draw.normal(size=(count + 2, 1)))
    table = (draw.normal(size=(count + 2, D)) * lengths).astype(np.float32)
    return Items(table, (bias * draw.normal(size=count)).astype(np.float32))


def open_ranking(items, scan, *, lifted=False):
    """A graph whose states are given, and with `lifted` what is added to the scores, with the ranking alone."""
    inputs: dict[str, list[str | int | None]] = {"given": ["B", D]}
    if lifted:
        inputs["added"] = ["B", len(items.table)]
    outputs = {"given": "state", "added": "lift"}
    graph = helper.make_graph(
        [helper.make_node("Identity", [name], [outputs[name]]) for name in inputs],
        "ranking",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(outputs[name], TensorProto.FLOAT, shape) for name, shape in inputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    append_ranking(model.graph, items, scan)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def ask(session, states, questions):
    """The graph's answer to questions that come with their states."""
    return session.run(["indexes", "scores"], {"given": states} | stack(session, questions))


def stack(session, questions):
    """The inputs of questions but for their states."""
    width = next(entry for entry in session.get_overridable_initializers() if entry.name == ALLOWED).shape[1]
    feed = stack_questions(questions, max_length=2, mask_index=8 * width - 1)  # no item, whatever the catalogue
    return {name: value for name, value in feed.items() if name not in ("item_ids", "lengths")}


def sort_all(items, state, question):
    """Indexes and float64 scores of what may be answered, best first, equal scores by index."""
    scores = items.table[1:-1].astype(np.float64) @ state.astype(np.float64) + items.bias
    allowed = np.full(len(scores), question.candidates is None)
    if question.candidates is not None:
        allowed[question.candidates - 1] = True
    allowed[question.exclude - 1] = False
    if question.allowed is not None:
        allowed &= question.allowed.mask[1:-1]
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
def test_rows_beyond_those_that_are_ranked_cost_no_scan(scan, ranked):
    """The first rows have the answers that they have alone; every row has its candidates' scores, excluded or not."""
    draw = np.random.default_rng(8)
    items = make_items(draw)
    session = open_ranking(items, scan)
    states = draw.normal(size=(5, D)).astype(np.float32)
    questions = [draw_question(draw)._replace(k=9) for _ in states]
    feed = stack(session, questions)
    given = feed | {name: feed[name][:ranked] for name in ("exclude", "candidates")}
    given |= {"given": states, RANKED: np.array([ranked]), SCORED: feed["candidates"]}
    indexes, scores, of_candidates = session.run(["indexes", "scores", "candidate_scores"], given)
    assert indexes.shape == scores.shape == (ranked, 9)
    check(items, states[:ranked], questions[:ranked], (indexes, scores))
    named = feed["candidates"]
    assert of_candidates.shape == (*named.shape, 1)
    of_candidates = of_candidates[..., 0]
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
    given[SCORED] = named[None]
    indexes, scores, of_candidates = open_ranking(items, scan).run(["indexes", "scores", "candidate_scores"], given)
    assert len(set(of_candidates[0, :, 0].tolist())) == len(set(scores[0].tolist())) == 1
    assert indexes[0].tolist() == sorted(named.tolist())


def draw_mask(draw, items, state):
    """Allows all, none, few or many at random, or only what scores low: the best blocks hold nothing then."""
    count = len(items.bias)
    share = draw.choice([0, 2 / count, 0.03, 0.5, 0.97, 1])
    free = draw.random(count + 2) < share
    if draw.random() < 0.3:
        scores = np.pad(items.table[1:-1] @ state + items.bias, 1)
        free = scores <= np.quantile(scores, share)
    return Allowed(free)


@cache
def open_random(scan, count):
    """Items of like length, whose blocks say little about each other, and their ranking."""
    items = make_items(np.random.default_rng(count), count, spread=0.1)
    return items, open_ranking(items, scan)


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize(("count", "batches"), [(5, 10), (62, 10), (63, 10), (V, 40), (20_050, 8)])
def test_masked_answers_are_those_of_a_sort(scan, count, batches):
    """Rows with and without masks, one for several or each its own, beside exclusions and candidates of all kinds."""
    draw = np.random.default_rng(count)
    items, session = open_random(scan, count)
    for _ in range(batches):
        states = draw.normal(size=(int(draw.integers(1, 7)), D)).astype(np.float32)
        masks = [None, *(draw_mask(draw, items, state) for state in states[:3])]
        questions = []
        for _ in states:
            question = draw_question(draw, count)
            k = min(question.k, count)
            questions.append(question._replace(k=k, allowed=masks[draw.integers(len(masks))]))
        check(items, states, questions, ask(session, states, questions))


@pytest.mark.parametrize("scan", SCANS)
def test_a_mask_that_allows_nothing_leaves_nothing(scan):
    """Alone and beside a row that has all items."""
    _, session = open_random(scan, V)
    nothing = Allowed(np.zeros(V + 2, dtype=bool))
    question = Question(np.empty(0, np.int32), np.empty(0, np.int32), None, 5, allowed=nothing)
    state = np.ones((1, D), dtype=np.float32)
    assert np.isneginf(ask(session, state, [question])[1]).all()
    scores = ask(session, np.repeat(state, 2, axis=0), [question._replace(allowed=None), question])[1]
    assert np.isfinite(scores[0]).all()
    assert np.isneginf(scores[1]).all()


@pytest.mark.parametrize("scan", SCANS)
def test_equal_scores_come_by_index_among_what_is_allowed(scan):
    """Items that are all alike, every third of them allowed."""
    items = Items(np.ones((V + 2, D), dtype=np.float32), np.zeros(V, dtype=np.float32))
    allowed = Allowed.only(np.arange(3, V, 3), item_count=V)
    question = Question(np.empty(0, np.int32), np.array([6], np.int32), None, 100, allowed=allowed)
    indexes, _ = ask(open_ranking(items, scan), np.ones((1, D), dtype=np.float32), [question])
    assert indexes[0].tolist() == [3, *range(9, 9 + 3 * 99, 3)]


@pytest.mark.parametrize("scan", SCANS)
def test_what_may_be_left_out_says_nothing_when_it_is(scan):
    """Runs without the optional inputs, as of services that do not know them, answer as with some that say nothing."""
    draw = np.random.default_rng(9)
    _, session = open_random(scan, V)
    assert {entry.name for entry in session.get_overridable_initializers()} == set(OPTIONAL)
    assert not set(OPTIONAL) & {entry.name for entry in session.get_inputs()}
    states = draw.normal(size=(3, D)).astype(np.float32)
    feed = {"given": states} | stack(session, [draw_question(draw) for _ in states])
    everything = np.full((1, 8 * -(-(V + 2) // BLOCK)), 255, dtype=np.int32)
    said = {
        RANKED: np.array([3]),
        SCORED: np.zeros((3, 1), dtype=np.int32),
        ALLOWED: everything,
        ALLOWED_ROWS: np.array([[1]]),
    }
    plain, told = (session.run(["indexes", "scores"], given) for given in (feed, feed | said))
    kept = np.isfinite(plain[1])
    assert (plain[0] == told[0])[kept].all()
    assert (plain[1] == told[1]).all()


def test_what_rules_add_is_masked_and_scored_too():
    """The scan beside rules: sorted by the sum, without what is forbidden, and the candidates' scores are sums."""
    draw = np.random.default_rng(10)
    items = make_items(draw)
    session = open_ranking(items, "plain", lifted=True)
    states = draw.normal(size=(4, D)).astype(np.float32)
    added = draw.normal(size=(4, V + 2)).astype(np.float32)
    masks = [None, *(draw_mask(draw, items, state) for state in states[1:])]
    questions = [draw_question(draw)._replace(allowed=mask) for mask in masks]
    feed = stack(session, questions)
    feed |= {"given": states, "added": added, SCORED: np.array([[0, 7, 900, V + 1]] * 4, dtype=np.int32)}
    indexes, scores, of_candidates = session.run(["indexes", "scores", "candidate_scores"], feed)
    for row, question in enumerate(questions):
        lifted = Items(items.table, items.bias + added[row, 1:-1])
        check(lifted, states[[row]], [question], (indexes[[row]], scores[[row]]))
        wanted = lifted.table[[7, 900]] @ states[row] + lifted.bias[[6, 899]]
        np.testing.assert_allclose(of_candidates[row, 1:3, 0], wanted, rtol=0, atol=1e-4)
        assert np.isneginf(of_candidates[row, [0, 3]]).all()


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
    items = make_items(draw, spread=0.5).pad()
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
    items = make_items(np.random.default_rng(6), bias=0).pad()
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
    items = make_items(draw, spread=spread, bias=bias).pad()
    quantized = Quantized.from_items(items.table[:, :width], items.bias)
    numbers = quantized.items.astype(np.int64)
    assert np.abs(numbers).max() > 60  # all eight bits but one are used
    worst = np.where(numbers[:, draw.integers(len(items.bias), size=200)] > 0, 255, 1).T  # meets an item at its largest
    drawn = draw.integers(1, 256, size=(50, len(numbers)))
    for states in (worst, 256 - worst, drawn, np.full((1, len(numbers)), 255)):
        np.testing.assert_array_equal(multiply_saturating(states, numbers), states @ numbers)
