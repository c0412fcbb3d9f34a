"""sweep.md: every trial with its values and what it came to, the best one first."""

from collections.abc import Sequence

from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.results import SHOWN
from training.sweep.best import find_best, format_command
from training.sweep.plan import Plan
from training.sweep.space import show_value
from training.sweep.study import Trial

_ABSENT = "-"


def format_sweep(plan: Plan, trials: Sequence[Trial], users: int, picture: str) -> str:
    """The table, the best recipe and the command that fits it, as Markdown. `users` is how many validated."""
    best = find_best(trials)
    finished = sum(trial.state == "finished" for trial in trials)
    head = ["trial", *plan.keys, *SHOWN, "best epoch", "epochs", "seconds", "ended"]
    lines = [
        f"# Sweep of {plan.name} on {plan.data.name}",
        "",
        f"{len(trials)} trials, {finished} of them finished. Metrics are of the validation events of {users:,} users, "
        "all items ranked and seen ones removed; the test was not looked at.",
        "",
        _join(head),
        _join(["---"] * len(head)),
        *(_format_row(plan, trial, bold=trial is best) for trial in _order(trials)),
        "",
        f"![Trials by epoch and by value]({picture})",
        "",
    ]
    return "\n".join(lines) + "\n".join(_tell_best(plan, trials, best)) + "\n"


def _tell_best(plan: Plan, trials: Sequence[Trial], best: Trial | None) -> list[str]:
    if best is None or best.value is None:
        return ["", "No trial is finished yet."]
    changed = ", ".join(f"{key} = {show_value(value)}" for key, value in best.values.items())
    text = f"**Best: trial {best.number + 1}, {changed}: {PRIMARY_METRIC} {best.value:.4f}"
    own = find_recipes_own(plan, trials)
    if own is not None and own.value is not None and own is not best:
        text += f", {best.value - own.value:+.4f} against the recipe as it is (trial {own.number + 1})"
    return [
        "",
        f"{text}.** The best of many trials is partly luck: `--try train.seed=1,2,3` with its values says how much.",
        "",
        "Train it to the end, and test it:",
        "",
        "```",
        format_command(plan),
        "```",
    ]


def find_recipes_own(plan: Plan, trials: Sequence[Trial]) -> Trial | None:
    """The trial that has the recipe's own values, if there is one."""
    return next((trial for trial in trials if trial.values and plan.make_recipe(trial.values) == plan.recipe), None)


def _order(trials: Sequence[Trial]) -> list[Trial]:
    """Finished ones first, by value; then the others by what they had come to."""

    def rank(trial: Trial) -> tuple[bool, float]:
        return trial.value is None, -(
            trial.value if trial.value is not None else max(trial.validation.values(), default=0)
        )

    return sorted(trials, key=rank)


def _format_row(plan: Plan, trial: Trial, *, bold: bool) -> str:
    details = trial.details
    metrics = details.get("metrics", {})
    numbers = [f"{metrics[name]:.4f}" if name in metrics else _ABSENT for name in SHOWN]
    cells = [
        str(trial.number + 1),
        *(show_value(trial.values[key]) if key in trial.values else _ABSENT for key in plan.keys),
        *(f"**{number}**" if bold else number for number in numbers),
        *(str(details.get(key, _ABSENT)) for key in ("kept_epoch", "epochs", "seconds")),
        "stopped: goes on with the next start" if trial.state == "stopped" else str(details.get("ended", trial.state)),
    ]
    return _join(cells)


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
