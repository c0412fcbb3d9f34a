"""Masks: whichever way is the cheapest, and whichever source answers, the lists are those of filter-then-sort."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.contract.allowed import Allowed
from model.contract.query import ALLOWED, Question
from model.contract.sessions import Sessions
from service.inference.counted import Counted
from service.inference.cuda_graphs import CudaGraphRunner
from service.inference.engine import Engine, open_engine
from service.inference.item_masks import ITEMS_PER_EXCLUSION, apply_mask, plan_of
from service.inference.model import LiveModel, load_model
from service.inference.reranking import count_few
from service.inference.shape_buckets import Bucket

V = 20
NONE = np.empty(0, dtype=np.int32)


@pytest.fixture(scope="module")
def model():
    """The tiny bundle's, with sessions to have all four sources."""
    loaded = load_model(Path(__file__).parents[1] / "bundle", provider="cpu", threads=1, max_batch=4)
    draw = np.random.default_rng(4)
    rows = [np.unique(draw.integers(1, V + 1, size=5)) for _ in range(30)]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    sessions = Sessions(
        item_count=V, starts=starts, items=np.concatenate(rows).astype(np.int32), moments=np.arange(len(rows))
    )
    return replace(loaded, neighbours=Counted.from_sessions(sessions, loaded.popular.counts[1:]))


@pytest.fixture(scope="module")
def engines(model, bundle):
    """The engines that a model may have: today's, one of a bundle of before, and one with bound runs as on a GPU."""
    session = model.engine._session
    before = bundle.network.replace(b"allowed_rows", b"unknown_rows")
    return {
        "now": model.engine,
        "before": open_engine(before, item_count=V, provider="cpu", threads=1),
        "bound": Engine(
            session,
            item_count=V,
            graphs=CudaGraphRunner(session, [Bucket(2, 8, 20, 20, V)], device="cpu"),
            scores_candidates=True,
            takes_masks=True,
        ),
    }


def test_only_bundles_with_the_inputs_take_masks(engines):
    """The graph says so itself; one that lacks some of them is asked as those of before."""
    assert engines["now"].takes_masks
    assert not engines["before"].takes_masks
    assert not engines["before"].scores_candidates


indexes = st.lists(st.integers(1, V), max_size=9)
some_masks = st.lists(
    st.builds(lambda bits: Allowed(np.array(bits)), st.lists(st.booleans(), min_size=22, max_size=22))
)


@st.composite
def batches(draw):
    """Questions of every kind, some with masks, which some of them share."""
    masks = [None, Allowed.only([], item_count=V), Allowed.all_but([], item_count=V), *draw(some_masks)]
    return [
        Question(
            np.array(draw(indexes), dtype=np.int32),
            np.array(draw(indexes), dtype=np.int32),
            draw(st.none() | indexes.map(lambda found: np.array(found, dtype=np.int32))),
            draw(st.integers(1, V)),
            allowed=draw(st.sampled_from(masks)),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]


def keep(vocabulary, everything, question):
    """The first k of all items that are left, given all of them in order."""
    named = range(1, V + 1) if question.candidates is None else question.candidates.tolist()
    left = set(named) - set(question.exclude.tolist())
    left -= set(() if question.allowed is None else question.allowed.forbidden.tolist())
    return [item_id for item_id in everything.item_ids if vocabulary.index_of(item_id) in left][: question.k]


@pytest.mark.parametrize("plan", ["as planned", "candidates", "exclude", "mask"])
@pytest.mark.parametrize("engine", ["now", "before", "bound"])
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=batches())
def test_all_ways_answer_as_filter_then_sort(model, engines, engine, plan, asked):
    """Alone and together with others, by candidates, exclusions or the graph's masks, with ties, by any engine."""
    asking: LiveModel = replace(model, engine=engines[engine])
    everything = model.rank([question._replace(exclude=NONE, candidates=None, k=V, allowed=None) for question in asked])
    with pytest.MonkeyPatch.context() if plan != "as planned" else nullcontext() as patch:
        if patch is not None:
            patch.setattr("service.inference.item_masks.plan_of", lambda _: plan)
            patch.setattr("service.inference.reranking.SCANNED_PER_RUN", 0)  # as in a large catalogue
            patch.setattr("service.inference.reranking.SCANNED_PER_LOOKUP", 1)
        answers = asking.rank(asked)
    for question, ranked, answer in zip(asked, everything, answers, strict=True):
        assert answer.item_ids == keep(model.vocabulary, ranked, question)
        scores = dict(zip(*ranked, strict=True))
        assert answer.scores == pytest.approx([scores[item_id] for item_id in answer.item_ids], abs=1e-5)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=batches())
def test_what_answers_without_the_engine_is_filtered_too(model, asked):
    """Popular items and neighbours: what a filter leaves of the whole list, and k of it where there are as many."""
    for question in asked:
        whole = question._replace(exclude=NONE, candidates=None, k=V, allowed=None)
        for rank in (model.rank_popular, model.rank_neighbours):
            answer = rank(question)
            assert answer.item_ids == keep(model.vocabulary, rank(whole), question)


@pytest.mark.parametrize(
    ("count", "item_count", "plan"),
    [
        (20, 20, "none"),
        (0, 20, "candidates"),
        (19, 20, "candidates"),
        (count_few(10**5), 10**5, "candidates"),
        (count_few(10**5) + 1, 10**5, "mask"),
        (10**5 - 10**5 // ITEMS_PER_EXCLUSION - 1, 10**5, "mask"),
        (10**5 - 10**5 // ITEMS_PER_EXCLUSION, 10**5, "exclude"),
        (10**5 - 1, 10**5, "exclude"),
    ],
)
def test_the_size_of_a_mask_says_how(count, item_count, plan):
    """Few allowed: candidates; few forbidden: exclusions; a mask for what lies between, and nothing for all."""
    allowed = Allowed.only(np.arange(1, count + 1), item_count=item_count)
    assert plan_of(allowed) == plan
    asked = Question(NONE, np.array([1], dtype=np.int32), None, 3, allowed=allowed)
    applied = apply_mask(asked, takes_masks=True)
    assert (applied.allowed is not None) == (plan == "mask")
    assert (applied.candidates is not None) == (plan == "candidates")
    assert len(applied.exclude) == 1 + (item_count - count if plan == "exclude" else 0)


def test_without_a_mask_nothing_is_planned():
    """A question without one is the same object afterwards."""
    question = Question(NONE, NONE, None, 3)
    assert plan_of(None) == "none"
    assert apply_mask(question, takes_masks=True) is question


def test_a_plain_batch_gives_the_graph_nothing_new(model, monkeypatch):
    """No input for masks is fed where no question has one, and none for the questions beside those that do."""
    session, fed = model.engine._session, []
    run = session.run

    def note(outputs, feed, *options):
        fed.append(feed)
        return run(outputs, feed, *options)

    monkeypatch.setattr(session, "run", note)
    monkeypatch.setattr("service.inference.item_masks.plan_of", lambda _: "mask")
    plain = Question(np.array([1], dtype=np.int32), NONE, None, 3)
    model.rank([plain, plain])
    assert ALLOWED not in fed[-1]
    model.rank([plain, plain._replace(allowed=Allowed.only([5], item_count=V))])
    assert fed[-1][ALLOWED].shape == (1, 8)
