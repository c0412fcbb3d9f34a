"""Questions that name their items: the same answers without the scan, whatever they are batched with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.contract.query import Question
from service.errors import EngineUnavailable
from service.inference.engine import CPU, Engine, open_engine
from service.inference.model import LiveModel, load_model
from service.inference.reranking import LOOKUPS_PER_RUN, SCANNED_PER_RUN, count_few, pick_rerankings, rerank

NONE = np.empty(0, dtype=np.int32)


@pytest.fixture(scope="module")
def model():
    """The tiny bundle's."""
    return load_model(Path(__file__).parents[1] / "bundle", provider="cpu", threads=1, max_batch=4)


@pytest.fixture(scope="module")
def scanning(model, bundle):
    """The same from a bundle of before, whose graph has no such output."""
    before = bundle.network.replace(b"candidate_scores", b"candidate_unused")
    return replace(model, engine=open_engine(before, item_count=20, provider="cpu", threads=1))


indexes = st.lists(st.integers(1, 20), max_size=9)
questions = st.builds(
    lambda history, exclude, candidates, k: Question(
        np.array(history, dtype=np.int32),
        np.array(exclude, dtype=np.int32),
        None if candidates is None else np.array(candidates, dtype=np.int32),
        k,
    ),
    indexes,
    indexes,
    st.none() | indexes,
    st.integers(1, 20),
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(questions, min_size=1, max_size=9), st.booleans())
def test_answers_are_those_of_the_scan(model, scanning, asked, apart):
    """Items named twice, excluded ones, none left, ties, questions that name none between them: items and order."""
    with pytest.MonkeyPatch.context() as patch:
        if apart:  # as in a large catalogue
            patch.setattr("service.inference.reranking.SCANNED_PER_RUN", 0)
            patch.setattr("service.inference.reranking.SCANNED_PER_LOOKUP", 1)
        found, wanted = model.rank(asked), scanning.rank(asked)
    for answer, expected in zip(found, wanted, strict=True):
        assert answer.item_ids == expected.item_ids
        assert answer.scores == pytest.approx(expected.scores, abs=1e-5)


def test_a_bundle_of_before_says_so(model, scanning):
    """It has no such output, and nothing asks for it."""
    assert model.engine.scores_candidates
    assert model.engine.skips_ranking
    assert not scanning.engine.scores_candidates
    assert not scanning.engine.skips_ranking


def test_named_items_alone_are_scored(model, monkeypatch):
    """A question that names items ranks no row of the graph; one beside it that names none ranks one."""
    monkeypatch.setattr("service.inference.reranking.SCANNED_PER_RUN", 0)
    monkeypatch.setattr("service.inference.reranking.SCANNED_PER_LOOKUP", 1)
    session, ranked = model.engine._session, []
    run = session.run

    def count(outputs, feed, *options):
        ranked.append((list(outputs), len(feed["exclude"])))
        return run(outputs, feed, *options)

    monkeypatch.setattr(session, "run", count)
    history = np.array([1, 2], dtype=np.int32)
    named = Question(history, NONE, np.array([3, 4], dtype=np.int32), 2)
    model.rank([named, Question(history, NONE, None, 2), named])
    assert ranked == [(["candidate_scores"], 0), (["indexes", "scores"], 1)]


def ask(candidates):
    """A question that names so many items, or None."""
    return Question(NONE, NONE, None if candidates is None else np.ones(candidates, dtype=np.int32), 1)


@pytest.mark.parametrize(
    ("named", "item_count", "picked"),
    [
        ([None], 10**6, []),
        ([0], 20, [0]),
        ([1], SCANNED_PER_RUN, []),
        ([100], SCANNED_PER_RUN + 6_400, [0]),
        ([101], SCANNED_PER_RUN + 6_400, []),
        ([count_few(10**6)], 10**6, [0]),
        ([count_few(10**6) + 1], 10**6, []),
        ([0, None], 20, []),
        ([0, None], SCANNED_PER_RUN, []),
        ([0, None], SCANNED_PER_RUN + 1, [0]),
        ([0, 0, None], SCANNED_PER_RUN // 2 + 1, [0, 1]),
        ([None, 5, 10_000, 5], 100_000, [1, 3]),
    ],
    ids=str,
)
def test_who_is_answered_apart(named, item_count, picked):
    """Those with few items for the catalogue, unless another run for them costs more than their part of the scan."""
    assert pick_rerankings([ask(count) for count in named], item_count=item_count) == picked


def test_a_run_looks_few_items_up():
    """Rows are padded to the longest: questions of a run are as long as each other, and no run grows beyond measure."""
    shapes = []

    def score(asked):
        lengths = [len(question.candidates) for question in asked]
        shapes.append((len(lengths), max(lengths)))
        return np.zeros((len(lengths), max(lengths)), dtype=np.float32)

    sizes = [3, 0, 10_000, 5, *[9_000] * 8, 1]
    asked = [ask(0)._replace(candidates=np.arange(1, size + 1, dtype=np.int32), k=4) for size in sizes]
    answers = rerank(asked, score)
    assert [len(items) for items, _ in answers] == [min(4, size) for size in sizes]
    assert answers[2][0] == [1, 2, 3, 4]
    assert len(shapes) > 1
    assert all(rows * longest <= LOOKUPS_PER_RUN for rows, longest in shapes)
    assert sum(rows for rows, _ in shapes) == len(sizes) - 1


@pytest.mark.parametrize(
    ("scores", "why"), [([[np.nan, 0.5]], "not finite"), ([[np.inf, 0.5]], "not finite"), ([[0.5]], "another shape")]
)
def test_nonsense_is_not_passed_on(model, scores, why):
    """Scores that are no numbers, or not of the items that were named, make the engine unavailable."""

    class Answering:
        def get_providers(self):
            return [CPU]

        def run(self, *_):
            return [np.array(scores, dtype=np.float32)[..., None]]

    broken: LiveModel = replace(model, engine=Engine(Answering(), item_count=20, scores_candidates=True))
    with pytest.raises(EngineUnavailable, match=why):
        broken.score([Question(np.array([1], np.int32), NONE, np.array([2, 3], np.int32), 2)])
