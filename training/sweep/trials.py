"""The trials of a sweep, one after the other, until there are enough, the time is over or somebody stops it."""

import time
from collections.abc import Callable, Mapping

import optuna
from rich.console import Console

from training.errors import RecipeError
from training.evaluation.metrics import PRIMARY_METRIC
from training.fit.progress_bar import say_minutes
from training.recipe import Recipe
from training.sweep.best import find_best
from training.sweep.plan import Plan
from training.sweep.space import Value, show_value
from training.sweep.study import Study, Trial
from training.sweep.trial import Ground, Outcome, discard_weights, run_trial

_MOST_REPEATS = 50
"""Choices in a row that were made before, or make no recipe, after which there is nothing left to try."""


class Trials:
    """Runs what is missing of a plan."""

    def __init__(self, plan: Plan, ground: Ground, study: Study, stop: Callable[[], bool]) -> None:
        self._plan = plan
        self._ground = ground
        self._study = study
        self._stop = stop
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)

    def run(self) -> None:
        """Run trials until there are `plan.trials`, those of earlier starts among them."""
        self._announce()
        own = self._plan.find_own()
        for values in self._plan.combinations or ([] if own is None else [own]):
            self._study.enqueue(values)
        while len(self._list_done()) < self._plan.trials and not self._stop():
            if self._is_late():
                self._console.print(f"the {self._plan.minutes:g} minutes are over: more --minutes go on")
                return
            begun = self._begin()
            if begun is None:
                self._console.print("nothing is left to try")
                return
            self._run(*begun)

    def _announce(self) -> None:
        for parameter in self._plan.space:
            self._console.print(f"trying {parameter.key}: {parameter.describe()}")
        for fault in self._plan.left_out:
            self._console.print(f"some combinations are left out: {fault}")
        if self._plan.recipe.rules_per_item is not None:
            self._console.print("trials are compared by the network alone; `fit` counts its rules")

    def _list_done(self) -> list[Trial]:
        return [trial for trial in self._study.list_trials() if trial.state != "stopped"]

    def _is_late(self) -> bool:
        minutes = self._plan.minutes
        return minutes is not None and self._study.seconds >= 60 * minutes

    def _begin(self) -> tuple[optuna.Trial, Recipe] | None:
        """The next trial with its recipe. Of what was tried before, or makes no recipe, only the optimizer is told."""
        done = self._list_done()
        for _ in range(_MOST_REPEATS):
            trial = self._study.begin(choose=self._plan.combinations is None)
            if trial is None:
                return None
            same = next((earlier for earlier in done if earlier.values == trial.params), None)
            try:
                recipe = self._plan.make_recipe(trial.params)
            except RecipeError:
                self._study.drop(trial, None)
                continue
            if same is None:
                return trial, recipe
            self._study.drop(trial, same.value)
        return None

    def _run(self, trial: optuna.Trial, recipe: Recipe) -> None:
        """Run a trial to its end, or until there is a stop or no time."""
        place, begun_s = len(self._list_done()), time.monotonic()
        self._console.print(f"trial {place + 1} of {self._plan.trials}: {describe_values(trial.params)}")
        minutes, spent_s = self._plan.minutes, self._study.seconds
        outcome = run_trial(
            recipe,
            self._plan.find_folder(place),
            self._ground,
            report=lambda epoch, value: self._study.report(trial, epoch, value),
            stop=lambda: self._stop() or (minutes is not None and spent_s + time.monotonic() - begun_s >= 60 * minutes),
        )
        self._study.add_seconds(time.monotonic() - begun_s)
        if outcome is None:
            return
        before = find_best(self._list_done())
        self._study.finish(trial, outcome.value, outcome.details)
        best = find_best(self._list_done())
        for number in {place, *([] if before is None else [before.number])} - {None if best is None else best.number}:
            discard_weights(self._plan.find_folder(number))
        self._tell(outcome, best)

    def _tell(self, outcome: Outcome, best: Trial | None) -> None:
        done, spent_s = len(self._list_done()), self._study.seconds
        left_s = spent_s / done * (self._plan.trials - done)
        if self._plan.minutes is not None:
            left_s = max(0.0, min(left_s, 60 * self._plan.minutes - spent_s))
        found = outcome.details["ended"] if outcome.value is None else f"{PRIMARY_METRIC} {outcome.value:.4f}"
        if best is not None and best.value is not None:
            found += f" (best {best.value:.4f}, trial {best.number + 1})"
        self._console.print(f"  {found}; {say_minutes(spent_s)} spent, about {say_minutes(left_s)} left")


def describe_values(values: Mapping[str, Value]) -> str:
    """The values of a trial in a line."""
    return ", ".join(f"{key} = {show_value(value)}" for key, value in values.items())
