"""The comparison of graphs: what its ratios are, and that no step is timed that answers otherwise than PyTorch."""

import itertools
from typing import Any

import numpy as np
import pytest

from benchmarks.graph import asked_network, boosted, filtered, reranking
from benchmarks.graph.__main__ import format_entry, race, summarize
from benchmarks.graph.proof import StepsDiffer, prove
from benchmarks.graph.steps import SCORED, open_bound, open_graphs
from benchmarks.harness.cases import Case, K, draw_feed, draw_lengths, draw_network
from model.contract.vocabulary import PAD
from model.export.graph import export_network
from service.inference.engine import open_engine

CASE = Case(12, 300, 16)
ONE_CPU: dict[str, Any] = {"item_count": 300, "provider": "cpu", "threads": 1}


def test_ratios_are_those_of_a_round():
    """Each step against the first one of the same round, so that a machine that slows down changes nothing."""
    summary = summarize({"plain": [10.0, 20.0, 40.0], "quick": [5.0, 4.0, 20.0]})
    assert summary["plain"]["ratio"] == 1
    assert summary["quick"] == {"ms": 5.0, "ms_least": 4.0, "ratio": 2.0, "ratio_least": 2.0, "ratio_most": 5.0}
    beside = summarize({"plain": [10.0], SCORED: [8.0], "quick": [4.0]})
    assert [step["ratio_to_scores"] for step in beside.values()] == [0.8, 1.0, 2.0]
    assert "(2.50 to 2.50), 2.00 the scores alone" in format_entry(
        CASE, {"part": "", "rows": 1, "threads": 1, "steps": beside}
    )
    entry = {"part": "encoder", "rows": 1, "threads": 2, "steps": summary}
    assert "5.000 ms (best 4.000)    2.00 times (2.00 to 5.00)" in format_entry(CASE, entry)


def test_steps_take_turns():
    """In every round each step runs a few times before the next one, and its quickest run counts."""
    clock, order = itertools.count(), []

    def make_step(name):
        def step(_):
            order.append(name)
            return []

        return step

    times = race({name: make_step(name) for name in "ab"}, {}, lambda: next(clock), rounds=2, seconds=0)
    assert [name for name, _ in itertools.groupby(order)] == ["a", "b", "a", "b"]
    assert times == {"a": [1e3, 1e3], "b": [1e3, 1e3]}


def test_histories_are_excluded_and_fill_the_window():
    """Full windows unless lengths are given; lengths never exceed the window."""
    feed = draw_feed(CASE, 3)
    assert (feed["item_ids"] != PAD).all()
    assert (feed["exclude"] == feed["item_ids"][:, :-1]).all()
    lengths = draw_lengths(Case(50, 300, 16), 200)
    assert 0 < lengths.min() < lengths.max() == 49


def test_all_steps_are_proven():
    """Every graph of the comparison answers as PyTorch, and one that does not is named."""
    network = draw_network(CASE, "bert4rec")
    steps = open_graphs(network, 1)
    [scores] = steps.pop(SCORED)(draw_feed(CASE, 2))
    assert scores.shape == (2, CASE.items + 2)
    assert 0 < prove(network, CASE, steps, histories=40) < 1e-4
    first = steps["top-k inside"]

    def swap(feed):
        indexes, scores = first(feed)
        return [indexes[:, ::-1], scores]

    with pytest.raises(StepsDiffer, match="'swapped' and PyTorch differ by"):
        prove(network, CASE, {"swapped": swap}, histories=20)
    assert first(draw_feed(CASE, 2))[0].shape == (2, K)
    assert np.isfinite(first(draw_feed(CASE, 2))[1]).all()


def test_bound_runs_are_proven():
    """From buffers, in a batch's own shape and in those of a GPU, the graph answers as PyTorch."""
    network = draw_network(CASE, "bert4rec")
    steps = open_bound(network, 1)
    assert len(steps) == 3
    assert 0 < prove(network, CASE, steps, histories=40) < 1e-4


def test_reranking_and_explaining_are_compared(monkeypatch, capsys):
    """Both ways answer alike before they are timed, and a line each says what they cost."""
    monkeypatch.setattr("sys.argv", ["reranking", "--cases", "12,300,16", "--rounds", "1", "--seconds", "0"])
    assert reranking.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "best 10 of 100 items, scan",
        "best 10 of 100 items, scores alone",
        "10 items explained by 20, scan",
        "10 items explained by 20, scores alone",
        "a plain question, for comparison, scan",
    ]
    asked = reranking.Asked(CASE, open_engine(export_network(draw_network(CASE, "sasrec")), **ONE_CPU))
    monkeypatch.setattr(reranking.Asked, "score", lambda self, questions: -self.scan(questions))
    assert reranking.find_difference(asked) is not None


def test_filters_are_proven_and_compared(monkeypatch, capsys):
    """Random filters answer as filter-then-sort does before any is timed, and a line each says what it costs."""
    monkeypatch.setattr(
        "sys.argv", ["filtered", "--cases", "12,1500,16", "--filters", "8", "--rounds", "1", "--seconds", "0"]
    )
    assert filtered.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("8 random filters answered as filter-then-sort does")
    assert [line.split(": ")[2] for line in lines[1:]] == [
        "no filter",
        "1,000 items allowed (mask)",
        "a twentieth allowed (candidates)",
        "a tenth allowed (mask)",
        "half allowed (mask)",
        "95 % allowed (exclude)",
        "all but 1,000 items (mask)",
        "all but 100 items (exclude)",
    ]
    network = draw_network(CASE, "sasrec")
    asked = asked_network.AskedNetwork(CASE, network, open_engine(export_network(network), **ONE_CPU))
    monkeypatch.setattr(asked_network, "apply_mask", lambda question, **_: question._replace(allowed=None))
    assert filtered.find_fault(asked, 8) is not None


def test_boosts_are_proven_and_compared(monkeypatch, capsys):
    """Random boosts answer as sums sorted do before any is timed, and a line each says what so many cost."""
    find_fault = boosted.find_fault

    def find_faults(*given, **named):
        with monkeypatch.context() as patch:
            patch.setattr(boosted, "ask_each", lambda question, sets: [question] * len(sets))
            assert find_fault(*given, **named) is not None
        return find_fault(*given, **named)

    monkeypatch.setattr(boosted, "find_fault", find_faults)
    options = ["--network", "sasrec", "--boosted", "8", "--rounds", "1", "--seconds", "0"]
    monkeypatch.setattr("sys.argv", ["boosted", "--cases", "12,1500,16", *options])
    assert boosted.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("8 boosted requests answered as sums sorted are")
    assert [line.split(": ")[2] for line in lines[1:]] == ["0 boosts", "1 boosts", "2 boosts", "4 boosts"]
