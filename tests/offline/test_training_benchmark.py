"""The comparison of trainers: what is counted, how turns become ratios, and our own system from end to end."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.training import rounds
from benchmarks.training.picture import draw_paces
from benchmarks.training.rounds import Missing, TurnFailed, find_interpreters, plan_turns, run_turn
from benchmarks.training.summary import format_summary, summarize
from benchmarks.training.systems.meter import Count, Meter
from benchmarks.training.terms import Terms, count_prefix_tokens, cut_material, read_task, write_task
from training.data.split import leave_one_out


@pytest.fixture
def material(make_log):
    """Three users with 12, 6 and 4 events; the two newest of each are held out."""
    log = make_log([range(1, 13), range(3, 9), [1, 2, 3, 4]], item_count=12)
    return cut_material(leave_one_out(log), 12, max_length=5, users=2, seed=1)


def make_turn(system, tokens, cpu_seconds, *, epoch_tokens=100):
    """A turn as a system ends it."""
    paces = {"tokens": tokens, "seconds": 2.0 * cpu_seconds, "cpu_seconds": cpu_seconds}
    return {"contestant": system, "epoch_tokens": epoch_tokens, **paces}


def test_all_train_on_the_newest_items_and_are_asked_about_whole_histories(material):
    """Training histories are cut to N, the questions are not, so that everything seen is removed."""
    assert material.train.lengths.tolist() == [5, 4, 2]
    assert material.train[0].tolist() == [6, 7, 8, 9, 10]
    assert len(material.questions) == 2
    assert set(material.questions.histories.lengths) <= {10, 4, 2}


def test_a_task_comes_back_as_it_was_written(material, tmp_path):
    """What another environment reads is what this one wrote."""
    terms = Terms(seconds=3.5, marks=(0.5, 1.0), dropout=None, recipe={"train": {"seed": 2}})
    write_task(tmp_path, terms, material)
    read, again = read_task(tmp_path)
    assert read == terms
    assert [list(history) for history in again.train] == [list(history) for history in material.train]
    assert again.questions.targets.tolist() == material.questions.targets.tolist()
    assert again.test.targets.tolist() == material.test.targets.tolist() == [12, 8, 4]
    assert again.test.histories[0].tolist() == list(range(1, 12))
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


def make_marked(marks, steps_cpu):
    """A meter with marks whose steps take so many CPU seconds, after one of preparation; each check takes 100."""
    now = {"wall": 0.0, "cpu": 0.0}
    lines: list[dict[str, Any]] = []

    def measure():
        now["cpu"] += 100.0
        return {"validation": {"NDCG@10": len(lines)}}

    meter = Meter(
        Terms(marks=marks),
        lines.append,
        measure=measure,
        began=(0.0, -1.0),
        clock=lambda: now["wall"],
        cpu_clock=lambda: now["cpu"],
        count_others=lambda: 0.25,
    )

    def take_steps():
        for cpu in steps_cpu:
            now["cpu"] += cpu
            if meter.step(10):
                return True
        return False

    return meter, lines, take_steps


def test_marks_are_measured_and_measuring_does_not_count():
    """Preparation counts, evaluation does not, processes still alive do; the last mark is enough."""
    meter, lines, take_steps = make_marked((2.0, 4.0), [0.5, 0.5, 1.0, 1.0, 9.0])
    assert take_steps()
    assert [check["cpu_seconds"] for check in meter.checks] == [2.25, 4.25]
    assert [check["steps"] for check in meter.checks] == [2, 4]
    assert [line["event"] for line in lines] == ["check", "check"]
    assert meter.count.cpu_seconds == 4.0
    meter.finish()
    assert len(meter.checks) == 2


def test_a_long_step_passes_many_marks_at_once():
    """They are measured once; what was trained behind the last one that was passed is measured at the end."""
    meter, _, take_steps = make_marked((1.5, 3.0, 6.0, 99.0), [6.0, 2.0])
    assert not take_steps()
    assert [check["cpu_seconds"] for check in meter.checks] == [7.25]
    meter.finish()
    assert [check["cpu_seconds"] for check in meter.checks] == [7.25, 9.25]


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


def test_pictures_are_drawn_from_any_number_of_turns():
    """After the first turn already, with nothing to compare yet."""
    all_turns = [make_turn("nextitem", 1000, 10.0), make_turn("rectools", 100, 10.0)]
    for some in (all_turns[:1], all_turns):
        assert draw_paces({"turns": some, "summary": summarize(some)}).startswith(b"\x89PNG")


def test_ours_stands_beside_every_peer():
    """A turn of ours goes before each peer's; alone there are only ours."""
    assert plan_turns(["rectools", "recbole"], 1) == ["nextitem", "rectools", "nextitem", "recbole"]
    assert plan_turns([], 2) == ["nextitem", "nextitem"]


def test_our_system_runs(material, tmp_path):
    """A whole turn in a process of its own: full batches, every token counted."""
    write_task(tmp_path, Terms(max_length=5, width=8, batch_size=2, seconds=0.05, warm_steps=0), material)
    lines: list[dict[str, Any]] = []
    turn = run_turn("nextitem", Path(sys.executable), tmp_path, threads=1, on_line=lines.append)
    assert turn == lines[-1]
    assert turn["epoch_tokens"] == 5 + 4 + 2
    assert turn["epoch_samples"] == 3
    whole, rest = divmod(turn["steps"], 2)  # two steps an epoch
    assert 11 * whole + 2 * rest <= turn["tokens"] <= 11 * whole + 9 * rest
    assert turn["threads"] == 1
    assert turn["checks"] == []


def test_a_system_that_fails_says_why(tmp_path, monkeypatch):
    """The end of what it wrote is in the error."""
    monkeypatch.setattr(rounds, "_ROOT", Path(__file__).parents[2])
    with pytest.raises(TurnFailed, match=r"nextitem ended with status 1(.|\n)*terms\.json"):
        run_turn("nextitem", Path(sys.executable), tmp_path, threads=1, on_line=lambda _: None)


def test_what_is_missing_is_said_with_what_makes_it(tmp_path):
    """The log and the environments, in one sentence with the command."""
    with pytest.raises(Missing, match=r"no .*log\.txt and no .*rectools/bin/python: `make bench-some DATA=FOLDER`"):
        find_interpreters(tmp_path / "log.txt", tmp_path, ["nextitem", "rectools"], target="bench-some")
