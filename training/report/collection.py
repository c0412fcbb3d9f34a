"""What a report needs the log for, gathered into one document, which report.json keeps.

Of a log of millions the counters' levels, the lists and the examples are of some users drawn at random, so that they
take seconds.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.baselines.catalogue import make_baseline
from training.data.interactions import Log
from training.data.split import Split, count_items
from training.errors import RunError
from training.evaluation.metrics import LIST_LENGTH, PRIMARY_METRIC
from training.evaluation.ranking import NetworkScorer, Scorer, evaluate
from training.recipe_models import BASELINES, NetworkRecipe
from training.report.data_facts import describe_data
from training.report.examples import ask_all, choose_examples, draw_some, sample_lists
from training.report.spread import describe_spread
from training.runs.evaluate import make_scorer
from training.runs.run import Run

LEVELS = ("pop", "markov", "rules")
"""The counters whose validation stands beside the learning curve while there is no test that names others."""
MOST_ASKED = 2_000
"""Validation questions of the counters, and lists where `fit` did not hand over all of them."""

Scorers = Mapping[str, Scorer]
Lists = Mapping[str, NDArray[np.int32]]
Document = dict[str, Any]


def collect(run: Run, log: Log, split: Split, scorers: Scorers | None = None, lists: Lists | None = None) -> Document:
    """All that the report says beyond the run's own files.

    `scorers` of the run and of counters, and `lists` ((B, K), of all test users), by model, where they are at hand. A
    run that cannot rank yet has `unranked`, the reason, in place of lists and examples.
    """
    scorers = scorers or {}
    facts: Document = {"results_of": name_results(run), "data": describe_data(log, split)}
    if isinstance(run.recipe.model, NetworkRecipe):
        facts["levels"] = measure_levels(run, log, split, scorers)
    try:
        scorer = scorers.get(run.recipe.name) or make_scorer(run, log, split)
    except RunError as error:
        return {**facts, "unranked": str(error)}
    if isinstance(scorer, NetworkScorer):
        facts["parameters"] = sum(weights.numel() for weights in scorer.network.parameters())
    held_out = len(split.test) > 0
    questions = split.test if held_out else ask_all(log.histories)
    if lists is None:
        lists = {run.recipe.name: sample_lists(scorer, questions, MOST_ASKED)}
    trained = count_items(split.train, len(log.vocabulary))
    facts["spread"] = {**describe_spread(trained, lists), "of_users": len(questions), "k": LIST_LENGTH}
    facts["examples"] = choose_examples(scorer, log, questions, held_out=held_out)
    return facts


def name_results(run: Run) -> str | None:
    """When the results were written that a report is about, or None while there are none."""
    return str(run.read_results()["finished_at"]) if run.is_finished else None


def measure_levels(run: Run, log: Log, split: Split, scorers: Scorers) -> Document | None:
    """NDCG@10 of the counters that the run is tested beside, on validation questions, as its epochs are measured."""
    questions = draw_some(split.validation, MOST_ASKED)
    if not len(questions):
        return None
    known = scorers if split.counted is split.train else {}  # by time, scorers of a test have counted these targets
    tested = run.read_results()["models"] if run.is_finished else LEVELS
    models = {}
    for name in filter(BASELINES.__contains__, tested):
        counter = known.get(name) or make_baseline(
            BASELINES[name](name=name), split.train, len(log.vocabulary), log.timestamps_ms
        )
        models[name] = float(evaluate(counter, questions)[PRIMARY_METRIC].mean())
    return {"users": len(questions), "of_users": len(split.validation), "models": models}
