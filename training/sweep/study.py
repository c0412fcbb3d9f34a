"""Trials as Optuna keeps and chooses them: a SQLite file in the sweep's folder, from which a stopped sweep goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from training.errors import RunError
from training.sweep.space import Parameter, Range, Value

_NAME = "sweep"
_STARTUP_TRIALS = 5
"""Trials whose values are drawn at random, and that are finished before any is pruned."""
_STATES = {TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned", TrialState.RUNNING: "stopped"}
_DROPPED = "dropped"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial as it was left: `state` is finished, pruned (or failed: see `ended`), or stopped in the middle."""

    number: int
    values: Mapping[str, Value]
    state: str
    value: float | None = None
    """What it is compared by: NDCG@10 of the kept epoch. None where it is not finished."""
    validation: Mapping[int, float] = field(default_factory=dict)
    """NDCG@10 by epoch, epochs counted from 1."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What `finish` was given."""


class Study:
    """The trials of a sweep. Close it when it is done."""

    def __init__(self, path: Path, space: Sequence[Parameter], *, seed: int, prune: bool) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it prints a line a trial, too
        self._space = space
        self._seed = seed
        try:
            self._storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        except Exception as error:
            raise RunError(f"{path} cannot be read as a sweep's trials: {str(error).splitlines()[0]}") from error
        pruner = optuna.pruners.MedianPruner(n_startup_trials=_STARTUP_TRIALS) if prune else optuna.pruners.NopPruner()
        self._study = optuna.create_study(
            storage=self._storage, study_name=_NAME, direction="maximize", pruner=pruner, load_if_exists=True
        )

    def close(self) -> None:
        """Let go of the file."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    @property
    def seconds(self) -> float:
        """How long all trials took together, as `add_seconds` was told."""
        return float(self._study.user_attrs.get("seconds", 0.0))

    def add_seconds(self, seconds: float) -> None:
        self._study.set_user_attr("seconds", self.seconds + seconds)

    def enqueue(self, values: Mapping[str, Value]) -> None:
        """Have a trial with these values come before what the optimizer chooses, unless there is one already."""
        self._study.enqueue_trial(dict(values), skip_if_exists=True)

    def begin(self, *, choose: bool) -> optuna.Trial | None:
        """The trial to go on with: one that was stopped, one that waits, or one that the optimizer chooses.

        None where there is none of the first two and nothing may be chosen. The optimizer's draws depend on the seed
        and the trial's number alone, so that a stop in between changes none of them.
        """
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not (running or waiting or choose):
            return None
        number = running[0].number if running else len(self._study.get_trials(deepcopy=False))
        draws = np.random.SeedSequence([self._seed, number]).generate_state(1)
        self._study.sampler = optuna.samplers.TPESampler(seed=int(draws[0]), n_startup_trials=_STARTUP_TRIALS)
        trial = optuna.Trial(self._study, self._find_id(running[0])) if running else self._study.ask()
        for parameter in self._space:
            _suggest(trial, parameter)
        return trial

    def _find_id(self, trial: FrozenTrial) -> int:
        study_id = self._storage.get_study_id_from_name(_NAME)
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)

    def report(self, trial: optuna.Trial, epoch: int, value: float) -> bool:
        """Take note of an epoch's NDCG@10. True where the trial is not worth going on with."""
        if epoch not in self._study.trials[trial.number].intermediate_values:  # an epoch may be done twice after a kill
            trial.report(value, epoch)
        return trial.should_prune()

    def finish(self, trial: optuna.Trial, value: float | None, details: Mapping[str, Any]) -> None:
        """End a trial: with its value, or pruned without one."""
        trial.set_user_attr("details", dict(details))
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        self._study.tell(trial, value, state=state)

    def drop(self, trial: optuna.Trial, value: float | None) -> None:
        """End a trial that is not run, since its value is known, or None: it is none of `list_trials`."""
        trial.set_user_attr(_DROPPED, True)
        self.finish(trial, value, {})

    def list_trials(self) -> list[Trial]:
        """All trials that have begun and were not dropped, numbered from 0 in their order."""
        found = self._study.get_trials(deepcopy=False, states=tuple(_STATES))
        kept = [trial for trial in found if _DROPPED not in trial.user_attrs]
        return [_describe(number, trial) for number, trial in enumerate(kept)]


def _describe(number: int, trial: FrozenTrial) -> Trial:
    return Trial(
        number=number,
        values=trial.params,
        state=_STATES[trial.state],
        value=trial.value if trial.state == TrialState.COMPLETE else None,
        validation=trial.intermediate_values,
        details=trial.user_attrs.get("details", {}),
    )


def _suggest(trial: optuna.Trial, parameter: Parameter) -> None:
    if not isinstance(parameter, Range):
        trial.suggest_categorical(parameter.key, parameter.values)
    elif parameter.whole:
        low, high = int(parameter.low), int(parameter.high)
        trial.suggest_int(parameter.key, low, high, step=parameter.step, log=parameter.logarithmic)
    else:
        trial.suggest_float(parameter.key, parameter.low, parameter.high, log=parameter.logarithmic)
