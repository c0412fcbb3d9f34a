"""Batches cut by length: every row once, padding spared, and no answer changed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.contract.allowed import Allowed
from model.contract.query import OUTPUTS, Question, encode_question, stack_questions
from service.inference.length_groups import group_by_length, run_cost_tokens

lengths = st.lists(st.integers(1, 200), max_size=64).map(lambda values: np.array(values, dtype=np.int32))


def pad(rows):
    """Tokens that a run of these rows computes."""
    return len(rows) * int(rows.max(initial=0))


@given(lengths, st.integers(0, 500))
def test_every_row_runs_once(lengths, run_tokens):
    """The groups hold each row of the batch, and none is empty but that of an empty batch."""
    groups = group_by_length(lengths, run_tokens=run_tokens)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
    assert all(map(len, groups)) or not len(lengths)


@given(lengths, st.integers(0, 500))
def test_each_cut_pays(lengths, run_tokens):
    """Padding and the price of all runs together are never more than those of the one run."""
    groups = group_by_length(lengths, run_tokens=run_tokens)
    assert sum(pad(lengths[rows]) + run_tokens for rows in groups) <= pad(lengths) + run_tokens


def test_long_and_short_histories_run_apart():
    """One long history does not make thirty short ones long; nearly equal ones stay together."""
    mixed = np.array([3, 200, *[5] * 30], dtype=np.int32)
    assert [len(rows) for rows in group_by_length(mixed, run_tokens=40)] == [1, 31]
    assert len(group_by_length(np.array([200, 199, 198, 197]), run_tokens=40)) == 1
    assert len(group_by_length(np.array([200]), run_tokens=40)) == 1


def test_large_catalogues_are_read_less_often():
    """Where a run reads a million items, the same batch stays whole."""
    mixed = np.array([3, 50, *[5] * 30], dtype=np.int32)
    assert len(group_by_length(mixed, run_tokens=run_cost_tokens(3_416))) == 2
    assert len(group_by_length(mixed, run_tokens=run_cost_tokens(1_000_000))) == 1


def test_cut_batches_answer_as_rows_alone(bundle, engine, monkeypatch):
    """Sixty questions of every kind, in an order that mixes lengths: each has the answer that it has alone."""
    draw = np.random.default_rng(8)
    ids = bundle.vocabulary.item_ids
    questions: list[Question] = [
        encode_question(
            bundle.vocabulary,
            history=draw.choice(ids, size=draw.integers(0, 9)),
            exclude=draw.choice(ids, size=draw.integers(0, 4)),
            candidates=[None, list(draw.choice(ids, size=5))][row % 2],
            k=6,
            allowed=Allowed(draw.random(len(ids) + 2) < 0.6) if row % 3 else None,
        )
        for row in range(60)
    ]
    sizes = {"max_length": bundle.manifest.max_length, "mask_index": bundle.vocabulary.mask_index}
    runs = []
    session = engine._session

    class Counting:
        def run(self, outputs, feed):
            """Note the shape of a run, and run it."""
            runs.append(feed["item_ids"].shape)
            return session.run(outputs, feed)

    monkeypatch.setattr(engine, "_session", Counting())
    monkeypatch.setattr(engine, "_run_tokens", 4)
    together = engine.rank(stack_questions(questions, **sizes))
    assert len(runs) > 2
    assert sum(rows for rows, _ in runs) == 60
    for row, question in enumerate(questions):
        indexes, scores = session.run(OUTPUTS, stack_questions([question], **sizes))
        kept = np.isfinite(scores[0])
        assert together.indexes[row][kept].tolist() == indexes[0][kept].tolist()
        np.testing.assert_allclose(together.scores[row], scores[0], atol=1e-5)
