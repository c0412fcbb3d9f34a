"""Testing what is there: a run, or a counter by its name, on a log and under a protocol."""

import sys
from pathlib import Path

from model.nets.network import UserNetwork
from training.attention import AttentionMap, measure_attention
from training.counters.catalogue import make_counter
from training.errors import RunError
from training.evaluation import Marks, NetworkScorer, Scorer, examine
from training.log import Log
from training.model_recipe import CounterRecipe
from training.protocol import Exam, Protocol, find_fault, require_split, set_exam
from training.reader import read_log
from training.recipe import DataRecipe
from training.run import Run
from training.split import Split, cut_log


def mark_counter(
    counter: CounterRecipe, data: Path, recipe: DataRecipe, protocol: Protocol, *, seed: int, train_only: bool
) -> tuple[Exam, Marks]:
    """Test a counter on a log; `train_only` counts no test event where the protocol's authors do."""
    log = read_log(data, recipe)
    split = protocol.cut(log, recipe)
    tell(find_fault(protocol, log))
    exam = set_exam(protocol, log, split, seed)
    whole = counter.network == "pop" and protocol.counts_everything and not train_only
    counted = log.histories if whole else split.train
    return exam, examine(make_counter(counter, counted, len(log.vocabulary), log.timestamps_ms), exam)


def mark_run(run: Run, data: Path, recipe: DataRecipe, protocol: Protocol, *, seed: int) -> tuple[Exam, Marks]:
    """Test a run on a log, its own or another one. Raises RunError where test events leak."""
    exam, scorer, _ = prepare_run(run, data, recipe, protocol, seed=seed)
    return exam, examine(scorer, exam)


def prepare_run(
    run: Run, data: Path, recipe: DataRecipe, protocol: Protocol, *, seed: int
) -> tuple[Exam, Scorer, Split]:
    """What is to be asked, who answers, and how the log is cut. Raises as `mark_run` does."""
    require_split(protocol, run.recipe.data, recipe, run.path)
    log = read_log(data, recipe, vocabulary=run.vocabulary)
    if _is_own(run, log):
        tell(find_fault(protocol, log))
    else:
        tell(
            f"{data} is not the log that {run.path} was trained on: whether it trained on these test events cannot be "
            f"told; {log.dropped} events of items that it does not know were left out"
        )
    split = cut(log, recipe)
    return set_exam(protocol, log, split, seed), make_scorer(run, log, split), split


def make_scorer(run: Run, log: Log, split: Split) -> Scorer:
    """What ranks by a run: its kept weights, or what it counted. Raises RunError where only its own log will do."""
    model = run.recipe.model
    if isinstance(model, CounterRecipe):
        _require_own(run, log, "counts the log anew")
        return make_counter(model, split.train, len(log.vocabulary), log.timestamps_ms)
    network = run.load_network()
    if isinstance(network, UserNetwork):
        _require_own(run, log, "ranks for the users that it was trained on")
    return NetworkScorer(network, log.histories, run.encode_events(log))


def _is_own(run: Run, log: Log) -> bool:
    return log.fingerprint == run.config["data"]["fingerprint"] and not log.dropped


def _require_own(run: Run, log: Log, what: str) -> None:
    if not _is_own(run, log):
        raise RunError(f"{run.recipe.model.network} {what}: {run.path} wants the log that it was fit on")


def map_attention(run: Run, data: Path, recipe: DataRecipe) -> AttentionMap:
    """Where a run's kept weights look in the test histories of a log, its own or another one. Raises InputError."""
    log = read_log(data, recipe, vocabulary=run.vocabulary)
    if log.dropped:
        tell(f"{log.dropped} events of items that {run.path} does not know were left out")
    return measure_attention(run.load_network(alone=True), cut(log, recipe).test.histories)


def tell(text: str | None) -> None:
    """Say on stderr what a user should know of a result, if there is anything."""
    if text:
        sys.stderr.write(f"note: {text}\n")


def name_protocol(recipe: DataRecipe) -> str:
    """The protocol that a run is measured by when nobody names one: full ranking over its own split."""
    return "time" if recipe.split == "time" else "P2"


def cut(log: Log, recipe: DataRecipe) -> Split:
    """A log as its recipe wants it cut. Raises DataError."""
    return cut_log(log, recipe.split, held_out_users=recipe.held_out_users, test_share=recipe.test_share)
