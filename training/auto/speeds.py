"""How fast this machine is on this log, measured: seconds a question for each model, and seconds an epoch."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from model.nets.registry import make_network
from training.auto.clock import Clock
from training.baselines.catalogue import make_baseline
from training.data.interactions import Log
from training.data.split import Questions, Split
from training.environment import choose_device
from training.evaluation.ranking import NetworkScorer, Scorer, evaluate
from training.fit.batches import Samples
from training.fit.loop import SILENT, train
from training.fit.optimizer import make_optimizer
from training.recipe import Recipe
from training.recipe_models import BASELINES, NetworkRecipe
from training.runs.progress import Progress

_AT_ONCE = 64
_MEASURED = 256
"""Questions that a speed is measured on at most, and the seconds after which fewer will do."""
_ENOUGH_SECONDS = 1.0
_COUNTING_SHARE, ASKING_SHARE = 0.3, 0.05
"""Of the minutes: counters that are slow to count are not begun after the first; one whose least test would take
more than the second is left out."""
SLOW_TO_COUNT = ("item-knn", "session-knn")
"""The others are counted however little time there is: without them there is nobody to beat."""
LEAST_TESTED = 200
"""Users that a test asks at least, where the log has as many."""


@dataclass
class Counters:
    """Counted baselines, what a question to each costs in seconds, and which were left out and why."""

    scorers: dict[str, Scorer] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    counting: dict[str, float] = field(default_factory=dict)
    """What it took to count each."""
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkSpeed:
    """Seconds of an epoch of training, and of a validation question."""

    epoch: float
    question: float


def count_counters(names: Sequence[str], log: Log, split: Split, clock: Clock) -> Counters:
    """Count each baseline in the training histories and measure it; what would take too long is left out."""
    found = Counters()
    for name in names:
        if name in SLOW_TO_COUNT and clock.elapsed > _COUNTING_SHARE * clock.total:
            found.left_out[name] = "no time was left to count it"
            continue
        recipe, begun = BASELINES[name](name=name), clock.elapsed
        scorer = make_baseline(recipe, split.counted, len(log.vocabulary), log.timestamps_ms)
        found.counting[name] = clock.elapsed - begun
        seconds = measure_scorer(scorer, split.validation)
        if seconds * LEAST_TESTED > ASKING_SHARE * clock.total:
            found.left_out[name] = f"it takes {seconds * 1000:.0f} ms a question"
            continue
        found.scorers[name], found.seconds[name] = scorer, seconds
    return found


def measure_scorer(scorer: Scorer, questions: Questions) -> float:
    """Seconds that a question takes to be scored and ranked."""
    rows = np.random.default_rng(0).permutation(len(questions))[:_MEASURED]
    begun, asked = time.monotonic(), 0
    while asked < len(rows) and time.monotonic() - begun < _ENOUGH_SECONDS:
        evaluate(scorer, questions.select(rows[asked : asked + _AT_ONCE]))
        asked += _AT_ONCE
    return (time.monotonic() - begun) / max(1, min(asked, len(rows)))


def measure_slowdown(counters: Counters, questions: Questions) -> float:
    """How many times slower than before this machine is now that others may use it, too; 1 at the least."""
    name = next(iter(counters.scorers), None)
    if name is None:
        return 1.0
    return max(1.0, measure_scorer(counters.scorers[name], questions) / counters.seconds[name])


def measure_network(recipe: Recipe, log: Log, split: Split, seconds: float) -> NetworkSpeed:
    """Train an untrained network for some seconds, which nothing else comes of, and ask it."""
    assert isinstance(recipe.model, NetworkRecipe)  # noqa: S101 - no other is trained
    V = len(log.vocabulary)
    torch.manual_seed(recipe.train.seed)
    network = make_network(recipe.model.name, item_count=V, user_count=len(log.user_ids), **recipe.model.sizes)
    network.to(choose_device(recipe.train.device))
    samples = Samples(
        split.train, recipe.train, max_length=network.config.max_length, item_count=V, causal=network.causal
    )
    progress = Progress()
    trial = replace(recipe.train, budget_seconds=seconds, epochs=2**31)
    optimizer = make_optimizer(network, trial)
    train(network, optimizer, samples=samples, validate=None, recipe=trial, progress=progress, watcher=SILENT)
    question = measure_scorer(NetworkScorer(network, split.train), split.validation)
    return NetworkSpeed(epoch=progress.seconds / max(1, progress.updates) * samples.steps, question=question)


def add_up(seconds: Mapping[str, float]) -> float:
    """What one question to every counter costs."""
    return sum(seconds.values())
