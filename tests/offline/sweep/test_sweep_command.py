"""`sweep`: trials by validation alone, pruned, gone on with, and the best one as a recipe."""

import re
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from training.cli import main
from training.evaluation.metrics import PRIMARY_METRIC
from training.plots.style import to_png
from training.recipe import read_recipe
from training.runs.run import Run
from training.sweep import plot
from training.sweep.command import run_sweep
from training.sweep.plan import make_plan
from training.sweep.study import Study

RECIPE = """
[model]
max_length = 6
width = 8
layers = 1
[train]
device = "cpu"
epochs = 2
batch_size = 16
warmup_steps = 2
"""
DEFAULTS: dict[str, Any] = {"preset": None, "grid": False, "trials": 6, "minutes": None, "prune": True, "items": None}
TRIED = ("train.learning_rate=1e-4..1e-1", "model.width=8,16")


@pytest.fixture
def recipe(tmp_path) -> str:
    """A recipe for networks that train in a moment."""
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return str(path)


@pytest.fixture
def sweep(tmp_path, recipe, cycle_csv, monkeypatch):
    """A function: sweep the recipe on the ring's log into a folder, unseen, and give back its plan and trials."""
    monkeypatch.setattr(plot, "to_png", lambda _: b"")

    def run(*tried, out="sweep", name=recipe, data=cycle_csv, stop=lambda: False, **more):
        plan = make_plan(name, (), tried=tried, data=data, out=tmp_path / out, **{**DEFAULTS, **more})
        swept = run_sweep(plan, stop)
        return plan, swept, read_trials(plan)

    return run


def read_trials(plan):
    """The trials of a sweep, from its file."""
    study = Study(plan.out / "trials.db", plan.space, seed=1, prune=plan.prune)
    try:
        return study.list_trials()
    finally:
        study.close()


def keep_into(kept):
    """What draws a figure, and keeps it."""

    def draw(figure):
        kept.append(figure)
        return to_png(figure)

    return draw


def stop_after(steps):
    """A wish to stop that comes when it has been asked about so often."""
    left = iter(range(steps))
    return lambda: next(left, None) is None


def forget_time(trials):
    """What trials came to, but for how long they took."""
    return [
        (trial.values, trial.state, trial.value, trial.validation, {**trial.details, "seconds": 0}) for trial in trials
    ]


@pytest.fixture(scope="module")
def swept(tmp_path_factory, write_cycles):
    """One sweep by the command line, for all tests that only read it: its folder, its log and what it printed."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "small.toml").write_text(RECIPE)
    log = write_cycles(folder)
    command = ["sweep", str(folder / "small.toml"), "--data", str(log), "--out", str(folder / "sweep"), "--trials", "6"]
    kept: list[Figure] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plot, "to_png", keep_into(kept))
        assert main([*command, *(word for tried in TRIED for word in ("--try", tried))]) == 0
    plan = make_plan(
        str(folder / "small.toml"),
        (),
        tried=TRIED,
        data=log,
        out=folder / "sweep",
        **DEFAULTS,
    )
    return plan, read_trials(plan), kept


def test_the_table_has_every_trial_and_the_best_first(swept):
    """Each with its values, metrics and end; the first trial is the recipe as it is."""
    plan, trials, _ = swept
    text = (plan.out / "sweep.md").read_text()
    rows = [line.strip("|").split("|") for line in text.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == len(trials) == 6
    assert trials[0].values == {"train.learning_rate": 1e-3, "model.width": 8}
    assert len({str(trial.values) for trial in trials}) == 6
    best = max(trials, key=lambda trial: trial.value or 0)
    assert [cell.strip() for cell in rows[0][:2]] == [str(best.number + 1), f"{best.values['train.learning_rate']:.4g}"]
    assert f"**{best.value:.4f}**" in rows[0][4]
    assert "the test was not looked at" in text
    assert f"{best.value - trials[0].value:+.4f} against the recipe as it is (trial 1)" in text
    assert f"nextitem-train fit {plan.out / 'best.toml'} --data {plan.data} --out runs/best" in text


def test_the_best_recipe_trains_the_same_again(swept, tmp_path, capsys):
    """`fit best.toml` has the best trial's recipe and, bit by bit, its validation."""
    plan, trials, _ = swept
    best = max(trials, key=lambda trial: trial.value or 0)
    assert read_recipe(str(plan.out / "best.toml")) == plan.make_recipe(best.values)
    assert main(["fit", str(plan.out / "best.toml"), "--data", str(plan.data), "--out", str(tmp_path / "best")]) == 0
    found = max(line["validation"][PRIMARY_METRIC] for line in Run.open(tmp_path / "best").read_epochs())
    assert found == best.value
    assert "NDCG@10" in capsys.readouterr().out


def test_no_trial_is_tested_and_only_the_best_keeps_weights(swept):
    """No results and no ranks; a course for each, weights for the best."""
    plan, trials, _ = swept
    folders = sorted((plan.out / "trials").iterdir())
    assert [folder.name for folder in folders] == [f"{number:03}" for number in range(1, 7)]
    assert not [path for path in plan.out.rglob("*") if path.name in {"results.json", "test_ranks.npz"}]
    best = max(trials, key=lambda trial: trial.value or 0)
    assert [folder.name for folder in folders if (folder / "kept.safetensors").exists()] == [f"{best.number + 1:03}"]
    assert all(Run.open(folder).read_epochs() for folder in folders)


def test_the_best_trial_can_be_tested_without_training(swept, capsys):
    """`fit --resume` finds it finished and only concludes it."""
    plan, trials, _ = swept
    best = max(trials, key=lambda trial: trial.value or 0)
    folder = plan.find_folder(best.number)
    before = (folder / "kept.safetensors").read_bytes()
    fit = ["fit", str(plan.out / "best.toml"), "--data", str(plan.data), "--out", str(folder), "--resume"]
    try:
        assert main(fit) == 0
        assert Run.open(folder).is_finished
        assert (folder / "kept.safetensors").read_bytes() == before
        assert "all 2 epochs done" in capsys.readouterr().out
    finally:
        for name in ("results.json", "test_ranks.npz"):
            (folder / name).unlink(missing_ok=True)


def test_the_picture_shows_epochs_and_every_key(swept):
    """A line for each trial, a panel for each key, the best marked at its place."""
    plan, trials, [figure] = swept
    epochs, rate, width = figure.axes
    assert len(epochs.lines) == 6
    best = max(trials, key=lambda trial: trial.value or 0)
    assert (rate.get_title(), rate.get_xscale()) == ("train.learning_rate", "log")
    [star] = [line for line in rate.lines if line.get_marker() == "*"]
    assert (list(np.asarray(star.get_xdata())), list(np.asarray(star.get_ydata()))) == (
        [best.values["train.learning_rate"]],
        [best.value],
    )
    assert [label.get_text() for label in width.get_xticklabels()] == ["8", "16"]
    assert (plan.out / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_the_test_events_change_nothing(sweep, swept, tmp_path):
    """A log with other test events: every trial has the same values and comes to the same numbers."""
    plan, trials, _ = swept
    lines = plan.data.read_text().splitlines()
    last = [
        place for place in range(1, len(lines)) if place + 1 == len(lines) or lines[place][:3] != lines[place + 1][:3]
    ]
    for place in last:
        user, item, moment = lines[place].split(",")
        lines[place] = f"{user},i{(int(item[1:]) + 4) % 12 + 1:02},{moment}"
    other = tmp_path / "other.csv"
    other.write_text("\n".join(lines) + "\n")
    _, _, found = sweep(*TRIED, data=other, trials=2)
    assert forget_time(found) == forget_time(trials[:2])


def test_a_stopped_sweep_goes_on_as_if_it_had_not_been(sweep, swept, capsys):
    """Stopped in the middle of trials, again and again: the same values and numbers; the same command ends it."""
    stops = -1
    ended = None
    while ended is None or ended.stopped:
        stops += 1
        _, ended, found = sweep(*TRIED, stop=stop_after(11))
    assert stops >= 2
    assert forget_time(found) == forget_time(swept[1])
    assert "trial 6 of 6" in capsys.readouterr().err
    _, _, more = sweep(*TRIED, trials=7)
    assert forget_time(more[:6]) == forget_time(found)
    assert len(more) == 7
    assert capsys.readouterr().err.count("\ntrial ") == 1  # only what is missing is trained


def test_another_sweep_needs_another_folder(swept, tmp_path, capsys):
    """Other keys, another recipe, another log, a folder with something else in it: refused in a sentence."""
    plan, _, _ = swept
    command = ["sweep", plan.name, "--data", str(plan.data), "--out", str(plan.out), "--try", TRIED[0]]
    assert main([*command, "--try", "model.width=8,32"]) == 2
    assert "holds a sweep with another --try or --preset" in capsys.readouterr().err
    assert main([*command, "--try", TRIED[1], "--set", "train.epochs=3"]) == 2
    assert "another recipe or --set" in capsys.readouterr().err
    changed = tmp_path / "changed.csv"
    changed.write_text(plan.data.read_text() + "late,i01,1800000000\n")
    assert main([*command, "--try", TRIED[1], "--data", str(changed)]) == 2
    assert "another --data" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").touch()
    assert main([*command, "--try", TRIED[1], "--out", str(tmp_path / "full")]) == 2
    assert "is not empty: choose another --out" in capsys.readouterr().err


def test_no_time_is_left(sweep, capsys):
    """The trial under way is stopped in the middle, said so, and gone on with when there is more time."""
    _, ended, found = sweep(*TRIED, minutes=1e-6)
    assert [trial.state for trial in found] == ["stopped"]
    assert not ended.stopped
    assert "No trial is finished yet." in ended.table
    assert "more --minutes go on" in capsys.readouterr().err
    _, _, found = sweep(*TRIED, minutes=9, trials=2)
    assert [trial.state for trial in found] == ["finished", "finished"]


def test_trials_that_diverge_are_told_and_left(sweep):
    """The sweep goes on, and the best is one of the others."""
    plan, ended, found = sweep("train.learning_rate=1e-2,1e30")
    assert {trial.values["train.learning_rate"]: trial.state for trial in found} == {1e-2: "finished", 1e30: "pruned"}
    assert "the loss is not a number" in ended.table
    assert read_recipe(str(plan.out / "best.toml")).train.learning_rate == 1e-2


def test_a_grid_of_one_key_is_drawn_by_its_values(sweep, monkeypatch):
    """Every metric by value, the mean over seeds and each seed; a preset's names stand at the side."""
    kept: list[Figure] = []
    monkeypatch.setattr(plot, "to_png", keep_into(kept))
    _, ended, found = sweep("model.width=4,8", "train.seed=1,2", grid=True, trials=None)
    assert [trial.values for trial in found][:2] == [
        {"model.width": 4, "train.seed": 1},
        {"model.width": 4, "train.seed": 2},
    ]
    axes = kept[0].axes[-1]
    mean = next(line for line in axes.lines if line.get_label() == PRIMARY_METRIC)
    assert list(np.asarray(mean.get_ydata())) == [
        pytest.approx(np.mean([trial.value for trial in found[start : start + 2]])) for start in (0, 2)
    ]
    assert ended.table.count("\n| ") == 2 + 4
    sweep(preset="bert4rec-ablations", out="ablations", trials=2)
    axes = kept[1].axes[-1]
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == ["as it is", "no positions"]


def test_a_baseline_is_swept_in_one_pass(sweep):
    """It is counted and asked; its best recipe names it."""
    plan, ended, found = sweep("model.decay=.5,.7,1", name="rules")
    assert [trial.state for trial in found] == ["finished"] * 3
    assert "counted" in ended.table
    assert read_recipe(str(plan.out / "best.toml")).model.name == "rules"


def test_what_is_worse_than_the_median_is_pruned(tmp_path):
    """After five finished trials; never without pruning. An epoch that is told twice counts once."""
    for prune in (True, False):
        study = Study(tmp_path / f"{prune}.db", [], seed=1, prune=prune)
        for place in range(5):
            trial = study.begin(choose=True)
            assert trial
            assert not study.report(trial, 1, place / 10)
            study.finish(trial, place / 10, {})
        trial = study.begin(choose=True)
        assert trial
        assert study.report(trial, 1, 0.19) == prune
        assert study.report(trial, 1, 0.5) == prune
        assert not study.report(trial, 2, 0.21)
        study.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--trials", "0"], "a whole number from 1"), (["--minutes", "-1"], "minutes are a number above 0")],
    ids=str,
)
def test_bounds_are_checked(capsys, options, message):
    """As errors of the command line."""
    with pytest.raises(SystemExit, match="2"):
        main(["sweep", "bert4rec-small", "--data", "x", "--out", "y", "--try", "model.width=8,16", *options])
    assert message in capsys.readouterr().err
