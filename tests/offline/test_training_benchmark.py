"""The comparison of trainers: what is counted, how turns become ratios, and our own system from end to end."""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.training import rounds
from benchmarks.training.picture import draw_paces, draw_race
from benchmarks.training.rounds import TurnFailed, plan_turns, run_turn
from benchmarks.training.summary import describe_race, format_race, format_summary, summarize
from benchmarks.training.systems.meter import Count, Meter
from benchmarks.training.terms import Terms, count_prefix_tokens, cut_material, read_task, write_task
from training.data.split import leave_one_out


@pytest.fixture
def material(make_log):
    """Three users with 12, 6 and 4 events; the two newest of each are held out."""
    log = make_log([range(1, 13), range(3, 9), [1, 2, 3, 4]], item_count=12)
    return cut_material(leave_one_out(log), 12, max_length=5, users=2, seed=1)


def make_turn(system, tokens, cpu_seconds, *, epoch_tokens=100, checks=()):
    """A turn as a system ends it."""
    paces = {"tokens": tokens, "seconds": 2.0 * cpu_seconds, "cpu_seconds": cpu_seconds}
    return {"contestant": system, "epoch_tokens": epoch_tokens, "checks": list(checks), **paces}


def test_all_train_on_the_newest_items_and_are_asked_about_whole_histories(material):
    """Training histories are cut to N, the questions are not, so that everything seen is removed."""
    assert material.train.lengths.tolist() == [5, 4, 2]
    assert material.train[0].tolist() == [6, 7, 8, 9, 10]
    assert len(material.questions) == 2
    assert set(material.questions.histories.lengths) <= {10, 4, 2}


def test_a_task_comes_back_as_it_was_written(material, tmp_path):
    """What another environment reads is what this one wrote."""
    terms = Terms(seconds=3.5, target=0.25)
    write_task(tmp_path, terms, material)
    read, again = read_task(tmp_path)
    assert read == terms
    assert [list(history) for history in again.train] == [list(history) for history in material.train]
    assert again.questions.targets.tolist() == material.questions.targets.tolist()
    assert again.item_count == 12


def test_prefixes_hold_every_item_many_times():
    """A history of n items has prefixes of 1 to n - 1 items."""
    assert count_prefix_tokens(np.array([5, 1, 3])) == (1 + 2 + 3 + 4) + 0 + (1 + 2)


def test_the_meter_leaves_out_warm_up_and_pauses():
    """Only steps after the warm-up count, and none of the time that something else takes."""
    now = {"wall": 0.0, "cpu": 0.0}
    meter = Meter(
        Terms(warm_steps=2, seconds=4.0),
        lambda _: None,
        clock=lambda: now["wall"],
        cpu_clock=lambda: now["cpu"],
    )
    done = []
    for _ in range(4):
        now["wall"] += 2.0
        now["cpu"] += 1.0
        done.append(meter.step(10))
        with meter.pause():
            now["wall"] += 100.0
    assert done == [False, False, False, True]
    assert meter.count == Count(steps=2, tokens=20, seconds=4.0, cpu_seconds=2.0)


def test_a_race_ends_at_the_target():
    """Validation comes when due, is not counted as training, and ends the turn once it is good enough."""
    found = iter([0.1, 0.3])
    meter = Meter(
        Terms(target=0.2, check_seconds=2.0, seconds=1000.0),
        lambda _: None,
        validate=lambda: next(found),
        clock=map(float, itertools.count()).__next__,
        cpu_clock=map(float, itertools.count()).__next__,
    )
    steps = next(step for step in itertools.count(1) if meter.step(1))
    assert [ndcg for *_, ndcg in meter.checks] == [0.1, 0.3]
    assert meter.count.steps == steps
    assert meter.checks[1][0] - meter.checks[0][0] >= 2.0


def test_ratios_compare_neighbours():
    """Each peer's turn is set against the turn of ours before it: 100 / 10, then 60 / 20."""
    summary = summarize(
        [
            make_turn("nextitem", 1000, 10.0),
            make_turn("rectools", 100, 10.0),
            make_turn("nextitem", 600, 10.0),
            make_turn("rectools", 200, 10.0, epoch_tokens=200),
        ]
    )
    ratio = summary["ratios"]["rectools"]
    assert ratio["tokens_per_cpu_second"] == {"median": 6.5, "least": 3.0, "most": 10.0, "turns": 2}
    assert ratio["epochs_per_cpu_hour"]["least"] == 6.0
    assert "nextitem" not in summary["ratios"]
    assert "6.5 (3.0 to 10.0)" in format_summary(summary)


def test_a_race_says_who_did_not_arrive():
    """The first check at the target counts; who never got there is shown with how far it came."""
    race = describe_race(
        [
            make_turn("nextitem", 500, 10.0, checks=[[4.0, 2.0, 0.05], [8.0, 4.0, 0.11], [12.0, 6.0, 0.12]]),
            make_turn("recbole", 10, 10.0, checks=[[20.0, 10.0, 0.02]]),
        ],
        0.1,
    )
    assert [entry["reached"] for entry in race] == [[8.0, 4.0], None]
    assert "8 s (4 CPU s), 5.00 epochs" in format_race(race, 0.1)
    assert "not within 20 s (10 CPU s): reached 0.0200" in format_race(race, 0.1)


def test_pictures_are_drawn_from_any_number_of_turns():
    """After the first turn already, with nothing to compare yet."""
    all_turns = [make_turn("nextitem", 1000, 10.0), make_turn("rectools", 100, 10.0)]
    for some in (all_turns[:1], all_turns):
        assert draw_paces({"turns": some, "summary": summarize(some)}).startswith(b"\x89PNG")
        assert draw_race({"turns": some, "terms": {"target": 0.1}}).startswith(b"\x89PNG")


def test_ours_stands_beside_every_peer():
    """A turn of ours goes before each peer's; alone there are only ours."""
    assert plan_turns(["rectools", "recbole"], 1) == ["nextitem", "rectools", "nextitem", "recbole"]
    assert plan_turns([], 2) == ["nextitem", "nextitem"]


def test_our_system_runs(material, tmp_path):
    """A whole turn in a process of its own: full batches, every token counted, a validation at the end."""
    write_task(tmp_path, Terms(max_length=5, width=8, batch_size=2, seconds=0.05, target=0.99), material)
    lines: list[dict[str, Any]] = []
    turn = run_turn("nextitem", Path(sys.executable), tmp_path, threads=1, on_line=lines.append)
    assert turn == lines[-1]
    assert turn["epoch_tokens"] == 5 + 4 + 2
    assert turn["epoch_samples"] == 3
    whole, rest = divmod(turn["steps"], 2)  # two steps an epoch
    assert 11 * whole + 2 * rest <= turn["tokens"] <= 11 * whole + 9 * rest
    assert turn["threads"] == 1
    assert 0 <= turn["checks"][-1][2] <= 1


def test_a_system_that_fails_says_why(tmp_path, monkeypatch):
    """The end of what it wrote is in the error."""
    monkeypatch.setattr(rounds, "_ROOT", Path(__file__).parents[2])
    with pytest.raises(TurnFailed, match=r"nextitem ended with status 1(.|\n)*terms\.json"):
        run_turn("nextitem", Path(sys.executable), tmp_path, threads=1, on_line=lambda _: None)
