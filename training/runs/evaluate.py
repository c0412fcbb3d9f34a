"""Evaluate a run, or a baseline by its name, on a log under a protocol."""

import sys
from pathlib import Path

from torch import Tensor

from model.nets.network import SequenceNetwork, UserNetwork
from training.baselines.catalogue import make_baseline
from training.baselines.rules import count_rules
from training.baselines.rules_of_others import RulesOfOthers
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.split import Split, cut_log
from training.errors import RunError
from training.evaluation.attention import AttentionMap, measure_attention
from training.evaluation.protocol import EvaluationTask, Protocol, build_task, find_fault, find_twin, require_split
from training.evaluation.ranking import NetworkScorer, Scorer, Scores, evaluate_task
from training.logs.reader import read_log
from training.recipe import DataRecipe
from training.recipe_models import BaselineRecipe
from training.runs.networks import load_network
from training.runs.recency import count_for
from training.runs.run import Run


def evaluate_baseline(
    baseline: BaselineRecipe, data: Path, recipe: DataRecipe, protocol: Protocol, *, seed: int, train_only: bool
) -> tuple[EvaluationTask, Scores]:
    """Evaluate a baseline on a log; `train_only` counts no test event where the protocol's authors do."""
    log = read_log(data, recipe)
    split = protocol.cut(log, recipe)
    print_note(find_fault(protocol, log) or find_twin(protocol, log))
    task = build_task(protocol, log, split, seed)
    whole = baseline.name == "pop" and protocol.counts_everything and not train_only
    counted = log.histories if whole else split.counted
    return task, evaluate_task(make_baseline(baseline, counted, len(log.vocabulary), log.timestamps_ms), task)


def evaluate_run(
    run: Run, data: Path, recipe: DataRecipe, protocol: Protocol, *, seed: int
) -> tuple[EvaluationTask, Scores]:
    """Evaluate a run on a log, its own or another one. Raises RunError where test events leak."""
    task, scorer, _ = prepare_run(run, data, recipe, protocol, seed=seed)
    return task, evaluate_task(scorer, task)


def prepare_run(
    run: Run, data: Path, recipe: DataRecipe, protocol: Protocol, *, seed: int
) -> tuple[EvaluationTask, Scorer, Split]:
    """The evaluation task, the scorer and the split of the log. Raises as `evaluate_run` does."""
    require_split(protocol, run.recipe.data, recipe, run.path)
    log = read_log(data, recipe, vocabulary=run.vocabulary)
    if _is_own(run, log):
        print_note(find_fault(protocol, log) or find_twin(protocol, log))
    else:
        print_note(
            f"{data} is not the log that {run.path} was trained on, so the run may have trained on these test events; "
            f"{log.dropped} events were left out: the run does not know their items"
        )
    split = cut(log, recipe)
    return build_task(protocol, log, split, seed), make_scorer(run, log, split), split


def make_scorer(run: Run, log: Log, split: Split, *, leave_own_out: bool = True) -> Scorer:
    """The scorer of a run: its kept weights, or its counts. Raises RunError where the run needs its own log.

    What a run counted in its own log answers a user without what he added, unless `leave_own_out` is off, as it is
    where lists are made: the service's rules are everybody's, and its recency is of the whole log.
    """
    model, V = run.recipe.model, len(log.vocabulary)
    counted = split.counted if leave_own_out else log.histories
    if isinstance(model, BaselineRecipe):
        _require_own(run, log, "counts the log again")
        return make_baseline(model, split.counted, V, log.timestamps_ms, leave_own_out=leave_own_out)
    network = load_network(run, recent=count_for(run.recipe, log, counted))
    if isinstance(network, UserNetwork):
        _require_own(run, log, "ranks only for the users of its training log")
    events = run.encode_events(log)
    if not (isinstance(network, SequenceNetwork) and leave_own_out and _is_own(run, log)) or network.rules is None:
        return NetworkScorer(network, log.histories, events)
    rules = RulesOfOthers(network.rules, count_rules(counted, V), counted)
    network.rules = None

    def lift(histories: Histories, item_ids: Tensor) -> Tensor:
        return rules.rules.strength * rules.lift(histories, item_ids)

    return NetworkScorer(network, log.histories, events, lift)


def _is_own(run: Run, log: Log) -> bool:
    return log.fingerprint == run.config["data"]["fingerprint"] and not log.dropped


def _require_own(run: Run, log: Log, what: str) -> None:
    if not _is_own(run, log):
        raise RunError(f"{run.recipe.model.name} {what}: {run.path} needs the log that it was trained on")


def map_attention(run: Run, data: Path, recipe: DataRecipe) -> AttentionMap:
    """The attention map of a run on the test histories of a log, its own or another one. Raises InputError."""
    log = read_log(data, recipe, vocabulary=run.vocabulary)
    if log.dropped:
        print_note(f"{log.dropped} events were left out: {run.path} does not know their items")
    return measure_attention(load_network(run, alone=True), cut(log, recipe).test.histories)


def print_note(text: str | None) -> None:
    """Print a note about a result on stderr, if there is one."""
    if text:
        sys.stderr.write(f"note: {text}\n")


def name_protocol(recipe: DataRecipe) -> str:
    """The default protocol of a run: full ranking over its own split."""
    return "time" if recipe.split == "time" else "P2"


def cut(log: Log, recipe: DataRecipe) -> Split:
    """Split a log by its recipe. Raises DataError."""
    return cut_log(log, recipe.split, held_out_users=recipe.held_out_users, test_share=recipe.test_share)
