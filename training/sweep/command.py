"""`sweep`: its folder, begun or gone on with, and what is written when it ends or is stopped.

```
OUT/sweep.json                       the recipe and what is tried, by which the same command goes on
    trials.db                        the trials: Optuna's study `sweep`, in SQLite
    trials/001                       the run of each: its recipe and course, without a test; weights of the best alone
    sweep.md, sweep.png              the table and the picture
    best.toml                        the recipe of the best trial
    sweep.lock                       held by the one sweep that writes here
```
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from model.contract.atomic_files import write_whole
from training.errors import InputError, RunError
from training.fit.fit import choose_users
from training.json_files import write_json
from training.logs.items import read_items
from training.logs.reader import read_log
from training.runs.documents import parse
from training.runs.evaluate import cut
from training.runs.lock import hold_lock
from training.sweep.best import find_best, format_best
from training.sweep.plan import Plan
from training.sweep.plot import draw_sweep
from training.sweep.study import Study
from training.sweep.table import find_recipes_own, format_sweep
from training.sweep.trial import Ground
from training.sweep.trials import Trials

_LOCK = "sweep.lock"


@dataclass(frozen=True)
class Swept:
    """What a sweep came to: its table, whether best.toml was written, and whether somebody stopped the sweep."""

    table: str
    has_best: bool
    stopped: bool


def run_sweep(plan: Plan, stop: Callable[[], bool]) -> Swept:
    """Run the trials that are missing, and write what all came to. Raises InputError and RunError."""
    log = read_log(plan.data, plan.recipe.data)
    metadata = read_items(plan.items, plan.recipe.data.ids) if plan.items else None
    ground = Ground(data=plan.data, log=log, split=cut(log, plan.recipe.data), metadata=metadata)
    users = len(choose_users(ground.split.validation, plan.recipe.train.validation_users, plan.recipe.train.seed))
    if not users:
        raise InputError(f"{plan.data} has nobody to validate on: trials cannot be compared")
    with hold_lock(plan.out / _LOCK, "sweep"):
        _check_same(plan, log.fingerprint)
        study = Study(plan.out / "trials.db", plan.space, seed=plan.recipe.train.seed, prune=plan.prune)
        try:
            Trials(plan, ground, study, stop).run()
            trials = study.list_trials()
        finally:
            study.close()
        table = format_sweep(plan, trials, users, "sweep.png")
        write_whole(plan.out / "sweep.png", draw_sweep(plan, trials, find_recipes_own(plan, trials)))
        write_whole(plan.out / "sweep.md", table.encode())
        best = find_best(trials)
        if best is not None:
            write_whole(plan.out / "best.toml", format_best(plan, best).encode())
    return Swept(table, best is not None, stop())


def _check_same(plan: Plan, fingerprint: str) -> None:
    """Begin sweep.json, or refuse to go on with another sweep than it names. Raises RunError."""
    path = plan.out / "sweep.json"
    now = json.loads(json.dumps({**plan.to_json(), "log": fingerprint}))
    if not path.exists():
        if any(file.name != _LOCK for file in plan.out.iterdir()):
            raise RunError(f"{plan.out} is not empty: choose another --out")
        write_json(path, now)
        return
    try:
        begun = dict(parse(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is not what a sweep writes: {error}") from error
    names = {"recipe": "recipe or --set", "space": "--try or --preset", "grid": "--grid", "prune": "--no-prune"}
    for key, value in now.items():
        if begun.get(key) != value:
            raise RunError(
                f"{plan.out} holds a sweep with another {names.get(key, '--data')}: the command that began it goes on "
                "with it, with more --trials or --minutes; another sweep needs another --out"
            )
