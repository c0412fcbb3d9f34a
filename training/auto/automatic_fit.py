"""`fit` without a recipe, from a log to a verdict: look, choose, measure, train, mix, test, and say what to publish."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from model.nets.network import Network
from training.auto.budget import Costs, Plan, count_tested, describe_plan, share_out
from training.auto.choice import choose, choose_split, describe_log_shortly
from training.auto.clock import Clock
from training.auto.record import NETWORK, is_finished, read_record, write_record
from training.auto.speeds import Counters, add_up, count_counters, measure_network, measure_slowdown
from training.auto.traits import look_at
from training.auto.verdict import SESSIONS, Verdict, find_best, judge
from training.data.interactions import Log
from training.data.item_features import Metadata
from training.data.split import Split
from training.errors import RecipeError, RunError
from training.fit.count_weights import count_weights_tried
from training.fit.fit import check_device, conclude_run, train_run
from training.fit.item_vectors import learn_item_start
from training.fit.ppmi import add_item_vectors, count_related, factorise_related, foretell_seconds
from training.fit.resuming import check_folder
from training.logs.items import read_items
from training.logs.reader import make_options, read_log
from training.recipe import DataRecipe, Recipe, make_recipe
from training.recipe_models import BASELINES, NetworkRecipe
from training.runs.chosen import WINNER
from training.runs.evaluate import cut
from training.runs.lock import FIT, hold_lock
from training.runs.progress import Progress, RunTracker
from training.runs.run import Run

_FACTORISING_SHARE, _TRIAL_SHARE = 0.25, 0.01
"""Of the minutes: a factorisation that would take more is left out; a trial of the network takes so much."""
_TRIAL_SECONDS = (0.2, 5.0)
_COUNTED_AGAIN = 8
"""How many times as long as to count rules once it takes to cut and sort them for mixing, test and bundle."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command was asked."""

    data: Path
    out: Path
    items: Path | None
    settings: tuple[str, ...]
    clock: Clock
    resume: bool
    item_vectors: Path | None = None
    trackers: Sequence[Callable[[Run], RunTracker]] = ()


@dataclass(frozen=True, kw_only=True)
class _Material:
    """What was read and counted."""

    log: Log
    split: Split
    metadata: Metadata | None
    counters: Counters


def fit_automatically(order: Order, say: Say, stop: Callable[[], bool]) -> Verdict | None:
    """Do all of it, saying each choice; None after a stop. Raises TrainingError."""
    record = _find_record(order)
    network = Run(order.out / NETWORK)
    if record is not None and is_finished(record):
        return judge(network.read_results(), network.recipe.name)
    with ExitStack() as held:
        if record is None:
            material, recipe, plan, costs, begin = _begin(order, say)
            held.enter_context(hold_lock(network.path / FIT, "training"))
            _start(network, recipe, material, order)
            _keep(order, plan, costs, material)
        else:
            material, plan, costs = _go_on(order, network, record)
            held.enter_context(hold_lock(network.path / FIT, "training"))
            begin = None
        log, split = material.log, material.split
        told = [held.enter_context(track(network)) for track in order.trackers]
        progress = train_run(network, log, split, stop=stop, begin=begin, trackers=told)
        if not progress.finished:
            return None
        left = order.clock.left if record is None else plan.end_seconds
        users = count_tested(plan, costs, left / measure_slowdown(material.counters, split.validation))
        say(f"Testing {users:,} users ...")
        results = conclude_run(network, log, split, progress, material.counters.scorers, most_users=users, report=True)
        for tracker in told:
            tracker.note_results(results)
        verdict = judge(results, network.recipe.name)
        _keep_best_counter(verdict, order, material, users)
        name = NETWORK if verdict.winner == verdict.tested else verdict.winner
        write_record(order.out, {**(read_record(order.out) or {}), WINNER: name})
    return verdict


def _find_record(order: Order) -> dict[str, Any] | None:
    record = read_record(order.out)
    if record is not None and not order.resume:
        raise RunError(f"{order.out} already holds a run: continue it with --resume, or choose another --out")
    if record is None:
        check_folder(Run(order.out), resume=False)
    return record


def _begin(order: Order, say: Say) -> tuple[_Material, Recipe, Plan, Costs, Callable[[Network], None] | None]:
    """Read, look, choose and measure. Returns what there is, how to train, and what sets the first weights."""
    clock = order.clock
    for name in BASELINES:
        if f"model.name={name}" in order.settings:
            raise RecipeError(f"{name} counts: fit it by its name, `nextitem-train fit {name}`")
    metadata, log, data = _read(order)
    named = {setting.partition("=")[0].strip() for setting in order.settings}
    traits = look_at(log, order.data, metadata, options=make_options(data), test_share=data.test_share)
    split_name, tested_on = choose_split(traits, data.split if "data.split" in named else None)
    if split_name == "none":
        raise RecipeError("data.split = none leaves nothing to choose by: fit needs leave-one-out or time")
    choice = choose(traits, split_name, tested_on, named)
    say(describe_log_shortly(traits))
    say(tested_on)
    recipe = make_recipe(choice.recipe, order.settings)
    check_device(recipe)
    split = cut(log, recipe.data)
    counters = count_counters(choice.counters, log, split, clock)
    material = _Material(log=log, split=split, metadata=metadata, counters=counters)
    recipe, begin, why = _choose_start(recipe, material, clock)
    trial = min(_TRIAL_SECONDS[1], max(_TRIAL_SECONDS[0], _TRIAL_SHARE * clock.left))
    speed = measure_network(recipe, log, split, trial)
    costs = _add_costs(counters, recipe, speed.epoch, speed.question)
    plan = share_out(
        total=clock.total,
        elapsed=clock.elapsed,
        costs=costs,
        epochs=recipe.train.epochs,
        validation_users=len(split.validation),
        test_users=len(split.test),
    )
    say(choice.trained + why)
    say(choice.beside)
    say(describe_plan(plan, clock.total, counters.left_out))
    return material, _fit_into(recipe, plan, named), plan, costs, begin


def _read(order: Order) -> tuple[Metadata | None, Log, DataRecipe]:
    data = make_recipe({}, [setting for setting in order.settings if setting.startswith("data.")]).data
    metadata = read_items(order.items, data.ids) if order.items else None
    return metadata, read_log(order.data, data), data


def _choose_start(
    recipe: Recipe, material: _Material, clock: Clock
) -> tuple[Recipe, Callable[[Network], None] | None, str]:
    """The recipe, and what gives the items their first vectors, where there is time for it."""
    assert isinstance(recipe.model, NetworkRecipe)  # noqa: S101 - others were refused
    if recipe.train.item_init != "ppmi":
        return recipe, None, ""
    related = count_related(material.split.train, len(material.log.vocabulary))
    seconds = foretell_seconds(related, recipe.model.width)
    if seconds > _FACTORISING_SHARE * clock.left:
        begun = replace(recipe, train=replace(recipe.train, item_init="random"))
        return begun, None, f" It begins at random: to factorise what occurs together would take {seconds:.0f} s."
    vectors = factorise_related(related, recipe.model.width, recipe.train.seed)
    return recipe, partial(add_item_vectors, vectors=vectors), ""


def _add_costs(counters: Counters, recipe: Recipe, epoch: float, question: float) -> Costs:
    """What was measured; where a counter was left out its cost is as good as the network's."""
    return Costs(
        epoch=epoch,
        network=question,
        ranking=min(counters.seconds.get("pop", question), question),
        rules=counters.seconds.get("rules", question),
        counters=add_up(counters.seconds),
        weights_tried=count_weights_tried(recipe),
        preparing=_COUNTED_AGAIN * counters.counting.get("rules", 0.0),
    )


def _fit_into(recipe: Recipe, plan: Plan, named: set[str]) -> Recipe:
    """The recipe with the plan's times and sizes, but for keys that the user set."""
    planned: dict[str, Any] = {
        "budget_seconds": round(plan.train_seconds, 1),
        "validation_users": plan.validation_users,
    }
    kept = {key: value for key, value in planned.items() if f"train.{key}" not in named}
    return replace(recipe, train=replace(recipe.train, **kept))


def _start(run: Run, recipe: Recipe, material: _Material, order: Order) -> None:
    vectors = order.item_vectors if isinstance(recipe.model, NetworkRecipe) else None
    item_start = learn_item_start(recipe, vectors, material.log.vocabulary)
    run.start(
        recipe, material.log, material.metadata, (), None,
        train=material.split.train, data=order.data, device=check_device(recipe), item_start=item_start,
    )  # fmt: skip


def _keep(order: Order, plan: Plan, costs: Costs, material: _Material) -> None:
    write_record(
        order.out,
        {
            "minutes": order.clock.total / 60,
            "end_seconds": plan.end_seconds,
            "test_users": plan.test_users,
            "question_seconds": costs.network,
            "counters": list(material.counters.scorers),
        },
    )


def _go_on(order: Order, run: Run, record: dict[str, Any]) -> tuple[_Material, Plan, Costs]:
    """Read and count again what a stopped run had."""
    metadata, log, _ = _read(order)
    if log.fingerprint != run.config["data"]["fingerprint"]:
        raise RunError(f"{order.out} was started on another log: --resume needs the same --data")
    split = cut(log, run.recipe.data)
    counters = count_counters(record["counters"], log, split, order.clock)
    costs = _add_costs(counters, run.recipe, 0.0, float(record["question_seconds"]))
    plan = Plan(
        train_seconds=0.0,
        validation_users=run.recipe.train.validation_users or len(split.validation),
        test_users=int(record["test_users"]),
        epochs=0.0,
        end_seconds=float(record["end_seconds"]),
        seconds=0.0,
    )
    return _Material(log=log, split=split, metadata=metadata, counters=counters), plan, costs


def _keep_best_counter(verdict: Verdict, order: Order, material: _Material, users: int) -> None:
    """Leave the best counter's run beside the network's, whoever won: both can be published, and compared live."""
    name = find_best(verdict.results["models"], material.counters.scorers.keys() - {SESSIONS})
    if name is None:
        return
    scorers = {key: material.counters.scorers[key] for key in ("pop",) if key in material.counters.scorers}
    run = Run(order.out / name)
    data = Run(order.out / NETWORK).recipe.to_dict()["data"]
    recipe = make_recipe({"data": data, "model": {"name": name}})
    _start(run, recipe, material, order)
    conclude_run(
        run, material.log, material.split, Progress(finished="counted"), scorers, most_users=users, report=True
    )
