"""Bound runs in few shapes answer as plain runs of a batch's own shape, here on the CPU, and leave answers alone."""

import logging

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.contract.allowed import Allowed
from model.contract.query import INPUTS, Question, stack_questions
from service.errors import EngineUnavailable
from service.inference.cuda_graphs import CudaGraphRunner, Outputs, RunsDiffer, answers_match
from service.inference.engine import CPU, CUDA, Engine, _capture, open_engine
from service.inference.shape_buckets import (
    CANDIDATES,
    EXCLUDED,
    RESULTS,
    Bucket,
    blank_feed,
    draw_feed,
    find_bucket,
    list_buckets,
    pad_feed,
)

SMALL = (Bucket(1, 4, 6, 3, 8), Bucket(1, 8, 6, 3, 8), Bucket(5, 4, 6, 3, 8), Bucket(5, 8, 6, 3, 8))
"""Edges that random questions meet often, and go beyond."""


@pytest.fixture(scope="module")
def graphs(engine, bundle):
    """An engine of the same session with bound runs."""
    return Engine(
        engine._session,
        item_count=bundle.manifest.item_count,
        graphs=CudaGraphRunner(engine._session, SMALL, device="cpu"),
    )


def make_feed(bundle, questions):
    """The graph's inputs for some questions."""
    return stack_questions(questions, max_length=bundle.manifest.max_length, mask_index=bundle.manifest.item_count + 1)


indexes = st.integers(1, 20)
histories = st.lists(indexes, max_size=12)
questions = st.builds(
    lambda history, exclude, candidates, k, forbidden: Question(
        np.array(history, dtype=np.int32),
        np.array(exclude, dtype=np.int32),
        None if candidates is None else np.array(candidates, dtype=np.int32),
        k,
        allowed=None if forbidden is None else Allowed.all_but(forbidden, item_count=20),
    ),
    histories,
    st.lists(indexes, max_size=8),
    st.none() | st.lists(indexes, max_size=5),
    st.integers(1, 10),
    st.none() | st.lists(indexes, max_size=20),
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(questions, min_size=1, max_size=12))
def test_bound_runs_answer_as_plain_ones(bundle, engine, graphs, asked):
    """Whatever is asked: within the shapes, at their edges, beyond them, and in batches larger than all of them."""
    feed = make_feed(bundle, asked)
    wanted, got = engine.rank(feed), graphs.rank(feed)
    assert got.indexes.shape == wanted.indexes.shape
    kept = wanted.scores != -np.inf
    assert ((got.scores != -np.inf) == kept).all()
    np.testing.assert_allclose(got.scores[kept], wanted.scores[kept], atol=1e-5)
    assert (got.indexes[kept] == wanted.indexes[kept]).all()


def counting(session, monkeypatch):
    """How the session is run from now on: a list of "bound" and "plain"."""
    runs = []
    for name, kind in (("run", "plain"), ("run_with_iobinding", "bound")):
        real = getattr(session, name)

        def run(*given, real=real, kind=kind):
            runs.append(kind)
            return real(*given)

        monkeypatch.setattr(session, name, run)
    return runs


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, ["bound"]),
        ({"k": 8}, ["bound"]),
        ({"k": 9}, ["plain"]),
        ({"exclude": 6}, ["bound"]),
        ({"exclude": 7}, ["plain"]),
        ({"candidates": 3}, ["bound"]),
        ({"candidates": 4}, ["plain"]),
        ({"rows": 5}, ["bound"]),
        ({"rows": 6}, ["bound", "bound"]),
        ({"rows": 11}, ["bound"] * 3),
        ({"mask": True}, ["plain"]),
        ({"mask": True, "rows": 6}, ["plain", "plain"]),
    ],
    ids=str,
)
def test_what_fits_is_bound(bundle, graphs, monkeypatch, change, kinds):
    """Up to a shape's edge a batch runs bound; beyond, in its own shape, or cut where it has too many rows."""
    size = {"k": 3, "exclude": 2, "candidates": 1, "rows": 2, "mask": False} | change
    question = Question(
        history=np.array([3, 4], dtype=np.int32),
        exclude=np.arange(1, size["exclude"] + 1, dtype=np.int32),
        candidates=np.arange(10, size["candidates"] + 10, dtype=np.int32),
        k=size["k"],
        allowed=Allowed.only([10, 11], item_count=20) if size["mask"] else None,
    )
    runs = counting(graphs._session, monkeypatch)
    assert len(graphs.rank(make_feed(bundle, [question] * size["rows"])).indexes) == size["rows"]
    assert runs == kinds


def test_an_answer_is_not_overwritten_by_the_next(bundle, graphs):
    """An answer that is still being read stays as it is while the next question runs in the same buffers."""
    first, second = (
        make_feed(bundle, [Question(np.array([item], np.int32), np.zeros(0, np.int32), None, 5)]) for item in (1, 9)
    )
    answer = graphs.rank(first)
    before = answer.indexes.copy(), answer.scores.copy()
    other = graphs.rank(second)
    assert (other.scores != before[1]).any()
    assert (answer.indexes == before[0]).all()
    assert (answer.scores == before[1]).all()


def test_a_question_leaves_nothing_to_the_next(bundle, engine, graphs):
    """A full batch with exclusions and candidates before a lone bare question: no row, token or item of it counts."""
    full = Question(
        np.arange(1, 10, dtype=np.int32), np.arange(1, 7, dtype=np.int32), np.arange(8, 11, dtype=np.int32), 8
    )
    bare = Question(np.array([2], np.int32), np.zeros(0, np.int32), None, 8)
    for rows in (1, 5):
        graphs.rank(make_feed(bundle, [full] * rows))
        feed = make_feed(bundle, [bare] * min(rows, 2))
        assert (graphs.rank(feed).indexes == engine.rank(feed).indexes).all()


@pytest.mark.parametrize(
    "broken",
    [
        {"item_ids": np.ones((1, 3), dtype=np.int64)},
        {"lengths": np.ones((1, 1), dtype=np.int32)},
        {"extra": np.zeros(1)},
        {"k": np.array([500])},
    ],
    ids=["type", "dimensions", "name", "k"],
)
def test_what_is_no_question_is_refused(bundle, graphs, broken):
    """A buffer takes any bytes, so that types are looked at first; and no error but ours comes out."""
    feed = make_feed(bundle, [Question(np.array([1], np.int32), np.zeros(0, np.int32), None, 5)])
    with pytest.raises(EngineUnavailable):
        graphs.rank(feed | broken)


def test_shapes_are_few_and_end_with_the_largest():
    """By fours up to the largest batch, short and long; a network of a short window has no short shapes."""
    listed = list_buckets(max_batch=32, max_length=200, item_count=3416)
    assert [(bucket.rows, bucket.length) for bucket in listed] == [
        (rows, length) for rows in (1, 4, 16, 32) for length in (64, 200)
    ]
    assert {bucket[2:] for bucket in listed} == {(EXCLUDED, CANDIDATES, RESULTS)}
    assert [bucket[:2] for bucket in list_buckets(max_batch=1, max_length=50, item_count=7)] == [(1, 50)]
    assert list_buckets(max_batch=1, max_length=50, item_count=7)[0].results == 7
    assert len(list_buckets(max_batch=1024, max_length=1000, item_count=10**6)) == 12


@given(st.integers(1, 40), st.integers(2, 300), st.integers(1, 2000), st.data())
def test_the_smallest_shape_is_taken(max_batch, max_length, item_count, data):
    """Of all that hold a batch none has fewer rows, nor as many and fewer tokens."""
    listed = list_buckets(max_batch=max_batch, max_length=max_length, item_count=item_count)
    rows, length = data.draw(st.integers(1, max_batch)), data.draw(st.integers(1, max_length))
    feed = blank_feed(Bucket(rows, length, 1, 1, 1), INPUTS)
    found = find_bucket(listed, feed)
    holding = [bucket for bucket in listed if bucket.rows >= rows and bucket.length >= length]
    assert found == min(holding)


def test_optional_inputs_are_padded_by_what_says_nothing():
    """What is known of events is aligned with the items, and absent before them."""
    inputs = (*INPUTS, "types", "values", "times")
    blank = blank_feed(Bucket(2, 4, 1, 1, 1), inputs)
    feed = blank_feed(Bucket(1, 2, 1, 1, 1), inputs)
    feed["values"][:] = [[3.0, np.nan]]
    feed["times"][:] = [[5, 6]]
    padded = pad_feed(feed, blank)
    np.testing.assert_array_equal(padded["values"], [[np.nan, np.nan, 3.0, np.nan]] * 2)
    assert padded["times"].tolist() == [[0, 0, 5, 6]] * 2
    assert padded["times"].dtype == np.int64


def test_proof_passes_where_answers_are_alike(engine, graphs):
    """Every shape runs as often as capturing and repeating it take, and is compared."""
    asked = []

    def answer(feed):
        asked.append(feed["item_ids"].shape)
        return engine.rank(feed)

    graphs._graphs.verify(answer, item_count=20, inputs=INPUTS, tolerance=1e-4)
    assert sorted(set(asked)) == sorted({bucket[:2] for bucket in SMALL})
    assert all(asked.count(bucket[:2]) == 3 for bucket in SMALL)


def test_proof_finds_runs_that_repeat_an_answer(engine, graphs, monkeypatch):
    """A run that gives the first answer again, whatever is asked, as one would that was captured wrongly."""
    first: dict[int, Outputs] = {}
    kind = type(graphs._graphs._shapes[SMALL[0]])
    run = kind.run
    monkeypatch.setattr(kind, "run", lambda self, feed: first.setdefault(id(self), run(self, feed)))
    with pytest.raises(RunsDiffer, match="1 rows of 4 tokens answer otherwise"):
        graphs._graphs.verify(engine.rank, item_count=20, inputs=INPUTS, tolerance=1e-4)


@pytest.mark.parametrize(
    ("indexes", "scores", "alike"),
    [
        ([1, 2, 3], [3.0, 2.0, 1.0], True),
        ([1, 2, 3], [3.005, 2.0, 1.0], True),
        ([1, 2, 3], [3.02, 2.0, 1.0], False),
        ([2, 1, 3], [3.0, 2.0, 1.0], False),
        ([1, 2, 9], [3.0, 2.0, 1.0], True),
        ([1, 9, 3], [3.0, 2.0, 1.0], False),
        ([1, 2, 3], [3.0, np.nan, 1.0], False),
        ([1, 2, 3], [3.0, 2.0, -np.inf], False),
    ],
)
def test_what_counts_as_alike(indexes, scores, alike):
    """Rounding does; other scores, items out of place, and more or fewer of them do not. The last may be another."""
    wanted = np.array([[1, 2, 3]]), np.array([[3.0, 2.0, 1.0]], dtype=np.float32)
    got = np.array([indexes]), np.array([scores], dtype=np.float32)
    assert answers_match(got, wanted, tolerance=0.01) == alike


def test_lists_that_end_early_may_not_end_otherwise():
    """Where nothing is left to rank, no other item can be the last."""
    wanted = np.array([[1, 2, 7]]), np.array([[3.0, 2.0, -np.inf]], dtype=np.float32)
    assert answers_match((np.array([[1, 2, 8]]), wanted[1]), wanted, tolerance=0.01)
    assert not answers_match((np.array([[1, 9, 7]]), wanted[1]), wanted, tolerance=0.01)


def test_drawn_questions_fill_their_shape():
    """A shape is proven at its full rows, tokens and results, by questions that differ from seed to seed."""
    bucket = Bucket(5, 10, 8, 16, 7)
    feed, other = (draw_feed(bucket, item_count=20, seed=seed) for seed in (0, 1))
    assert feed["item_ids"].shape == (5, 10)
    assert feed["k"].tolist() == [7]
    assert find_bucket([bucket], feed) == bucket
    assert (feed["item_ids"] != other["item_ids"]).any()


def test_on_a_cpu_nothing_is_bound(bundle):
    """Shapes are for GPUs: a CPU runs every batch in its own, as quickly (docs/lab/2026-11-21-gpu-graphs.md)."""
    engine = open_engine(bundle.network, item_count=20, provider="cpu", threads=1, buckets=SMALL)
    assert engine.provider == CPU
    assert engine._graphs is None


@pytest.fixture(scope="module")
def has_gpu(bundle):
    """Whether ONNX Runtime uses a GPU here; that its package knows CUDA does not say so."""
    return open_engine(bundle.network, item_count=20, provider="auto", threads=1).provider == CUDA


def test_where_nothing_can_be_captured_one_line_says_so(bundle, engine, has_gpu, caplog):
    """Without a GPU nothing can be captured, and the engine stays as it is: settled while loading, not in a request."""
    if has_gpu:
        pytest.skip("CUDAExecutionProvider is available")
    caplog.set_level(logging.WARNING)
    assert _capture(bundle.network, engine, threads=1, item_count=20, inputs=INPUTS, buckets=SMALL) is None
    [line] = caplog.messages
    assert line.startswith("No CUDA graphs: ")


def test_runs_are_captured_on_a_gpu(bundle, engine, has_gpu):
    """On a GPU the bundle's network is captured in every shape, and what is repeated answers as the CPU does."""
    if not has_gpu:
        pytest.skip("CUDAExecutionProvider not available")
    buckets = list_buckets(max_batch=8, max_length=bundle.manifest.max_length, item_count=20)
    captured = open_engine(bundle.network, item_count=20, provider="cuda", threads=1, buckets=buckets)
    assert captured._graphs is not None
    for bucket in buckets:
        feed = draw_feed(bucket, item_count=20, seed=7)
        assert answers_match(captured.rank(feed), engine.rank(feed), tolerance=1e-2)
