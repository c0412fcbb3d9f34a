"""Counts as a graph: numpy's answers, for any question; and a bundle like every other."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import onnxruntime
import pytest

from model.contract.allowed import Allowed
from model.contract.bundle import read_bundle
from model.contract.counted import FLOOR, TIE, Counted, make_no_rules
from model.contract.query import INPUTS, OUTPUTS, Question, stack_questions
from model.contract.rules import Rules
from model.contract.vocabulary import Vocabulary
from model.export.counted import export_counted
from model.export.graph import OPSET, publish_bundle
from model.export.parity import ExportError

V = 90


def make_counted(*, window, decay, distinct=False):
    """Drawn rules, none for some items, and popularity with equals."""
    draw = np.random.default_rng(window)
    lengths = draw.integers(0, 9, size=V + 1)
    lengths[0] = 0
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rules = Rules(
        starts=starts,
        followers=draw.integers(1, V + 1, size=starts[-1]).astype(np.int32),
        weights=np.exp(draw.normal(size=starts[-1]) * 3).astype(np.float32),
        decay=decay,
        window=window,
    )
    return Counted(prior=(draw.integers(0, 50, size=V) / 64).astype(np.float32), rules=rules, distinct=distinct)


KINDS = {
    "popularity": Counted(prior=np.linspace(0, 0.9, V, dtype=np.float32), rules=make_no_rules(V)),
    "the last item": make_counted(window=1, decay=1.0),
    "decayed": make_counted(window=20, decay=0.7),
    "distinct": make_counted(window=5, decay=1.0, distinct=True),
}


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def counted(request):
    """Each kind of counts."""
    return request.param


def test_the_graph_answers_as_numpy_does(counted):
    """Histories short, long and empty, items twice; exclusions, candidates and masks; alone and in batches."""
    session = onnxruntime.InferenceSession(export_counted(counted, opset=OPSET), providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(1)
    for size in (1, 7):
        questions = []
        for _ in range(size * 3):
            history = draw.integers(1, V + 1, size=draw.integers(0, 30)).astype(np.int32)
            history = history[draw.integers(0, max(1, len(history)), size=len(history))]  # some twice
            candidates = draw.integers(1, V + 1, size=12).astype(np.int32) if draw.random() < 0.4 else None
            allowed = Allowed(draw.random(V + 2) < 0.5) if draw.random() < 0.4 else None
            questions.append(Question(history, history[:5], candidates, 10, allowed=allowed))
        feed = stack_questions(questions, max_length=counted.max_length, mask_index=V + 1)
        indexes, scores = session.run(OUTPUTS, feed)
        for question, found, values in zip(questions, indexes, scores, strict=True):
            wanted = counted.score(question.history)
            open_ = np.ones(V, dtype=bool)
            if question.candidates is not None:
                open_ = np.isin(np.arange(1, V + 1), question.candidates)
            if question.allowed is not None:
                open_ &= question.allowed.mask[1:-1]
            open_[question.exclude - 1] = False
            n = min(10, int(open_.sum()))
            assert np.allclose(values[:n], np.sort(wanted[open_])[::-1][:n], atol=1e-4)
            assert np.allclose(wanted[found[:n] - 1], values[:n], atol=1e-4)
            assert open_[found[:n] - 1].all()
            assert np.isneginf(values[n:]).all()


def test_popularity_decides_among_equals():
    """Of two items that rules name alike the more popular one comes first, and every named one before all others."""
    rules = Rules(
        starts=np.array([0, 0, 3, 3, 3, 3, 3]),
        followers=np.array([2, 3, 4], dtype=np.int32),
        weights=np.array([0.5, 0.5, 1e-11], dtype=np.float32),
    )
    prior = np.array([0.9, 0.2, 0.6, 0.0, 0.99], dtype=np.float32)
    scores = Counted(prior=prior, rules=rules).score(np.array([1], dtype=np.int32))
    assert np.argsort(-scores).tolist() == [2, 1, 3, 4, 0]
    assert scores[2] == pytest.approx(1 + np.log1p(0.5 / FLOOR) + TIE * 0.6)


def test_bytes_hold_all_of_it(counted):
    """What is read again scores as what was written; for other items it is refused, and so is a prior beyond 1."""
    again = Counted.from_bytes(counted.to_bytes(), V)
    history = np.arange(1, 30, dtype=np.int32)
    assert np.array_equal(again.score(history), counted.score(history))
    assert again.max_length == counted.max_length
    with pytest.raises(ValueError, match=r"rules|popularity"):
        Counted.from_bytes(counted.to_bytes(), V + 1)
    if len(counted.rules.followers):
        broken = Counted(prior=counted.prior + 1, rules=counted.rules, distinct=counted.distinct)
        with pytest.raises(ValueError, match="popularity"):
            Counted.from_bytes(broken.to_bytes(), V)


def test_it_becomes_a_bundle(tmp_path):
    """With golden examples of its own; similar items and other scans are refused, for want of an item table."""
    vocabulary = Vocabulary([f"i{number:02}" for number in range(1, V + 1)])
    described: dict[str, Any] = {
        "name": "rules",
        "vocabulary": vocabulary,
        "counts": np.arange(V),
        "trained_at": datetime(2026, 11, 23, tzinfo=UTC),
        "last_event_at": None,
        "data_fingerprint": "sha256:0",
        "metrics": {},
        "histories": [[1, 2, 3], [5], list(range(1, 60))],
    }
    counted = KINDS["decayed"]
    bundle = read_bundle(publish_bundle(tmp_path, counted, **described))
    assert (bundle.manifest.max_length, bundle.manifest.inputs) == (21, INPUTS)
    assert len(bundle.golden) == 1 + 3 * 3
    with pytest.raises(ExportError, match="no item table"):
        publish_bundle(tmp_path, counted, **described, similar=True)
    with pytest.raises(ExportError, match="no item table"):
        publish_bundle(tmp_path, counted, **described, scan="int8")
