"""What is counted beside a network, sequential rules and what is popular of late, and how much each counts.

The weights are chosen together on validation questions. Test events play no part. Nor does a user's own training
history answer his question: it names what he meets again, and so would have rules weigh more than they are worth
(docs/decisions/0031). What then answers the test questions is counted anew where more is known by then
(docs/decisions/0036).
"""

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from model.nets.rules import SequentialRules
from training.baselines.rules import count_rules, cut_rules, learn_rules
from training.baselines.rules_of_others import RulesOfOthers
from training.data.interactions import Log
from training.data.split import Questions, Split
from training.evaluation.metrics import PRIMARY_METRIC, measure_ranks
from training.evaluation.ranking import NetworkScorer, rank_batch, show_batches, split_rows
from training.recipe import Recipe
from training.runs.checkpoint import save_weights
from training.runs.networks import load_network
from training.runs.recency import Recency, count_for
from training.runs.run import Run

RULE_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
RECENCY_WEIGHTS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""The candidates; 0 is the network alone."""


class Weights(NamedTuple):
    """What rules and recency count beside a network."""

    rules: float = 0.0
    recency: float = 0.0


@torch.inference_mode()
def try_weights(
    scorer: NetworkScorer,
    questions: Questions,
    *,
    rules: RulesOfOthers | None = None,
    recent: Tensor | None = None,
) -> dict[Weights, float]:
    """NDCG@10 over validation questions by the weights of what is there.

    The network, without either, scores each question once. `recent` (V) is what recency adds at weight 1.
    """
    network, max_length = scorer.network, scorer.network.config.max_length
    by_rules = (0.0,) if rules is None else RULE_WEIGHTS
    by_recency = (0.0,) if recent is None else RECENCY_WEIGHTS
    totals = dict.fromkeys((Weights(*each) for each in product(by_rules, by_recency)), 0.0)
    with show_batches("questions", len(questions)) as answered:
        for rows in split_rows(questions, network.item_count):
            batch = questions.select(rows)
            alone = scorer.score(batch.histories)
            lift: Tensor | float = 0.0
            if rules is not None:
                item_ids, _ = batch.histories.query_next(max_length=max_length, mask_index=network.item_count + 1)
                lift = rules.lift(batch.histories, torch.from_numpy(item_ids))
            for rule_weight in by_rules:
                with_rules = alone + rule_weight * lift
                for weight in by_recency:
                    scores = with_rules if recent is None else with_rules + weight * recent
                    greater, ties, _ = rank_batch(scores, batch)
                    totals[Weights(rule_weight, weight)] += float(np.sum(measure_ranks(greater, ties)[PRIMARY_METRIC]))
            answered(len(rows))
    return {weights: total / len(questions) for weights, total in totals.items()}


def count_weights_tried(recipe: Recipe) -> int:
    """How many weights `try_weights` compares for a recipe."""
    rules = 1 if recipe.rules_per_item is None else len(RULE_WEIGHTS)
    return rules * (1 if recipe.recent_days is None else len(RECENCY_WEIGHTS))


def choose_weights(tried: Mapping[Weights, float]) -> Weights:
    """The best ones, the least of equals."""
    return max(sorted(tried), key=lambda weights: tried[weights])


def read_weights(results: Mapping[str, Any]) -> Weights:
    """The weights that results.json names."""
    rules, recency = results.get("rules"), results.get("recency")
    return Weights(0.0 if rules is None else rules["strength"], 0.0 if recency is None else recency["weight"])


def count_beside(run: Run, log: Log, split: Split, questions: Questions) -> dict[str, Any]:
    """Count what the recipe wants beside the network, choose the weights on validation questions, and keep all of it.

    Returns what results.json says of it, nothing where nothing is wanted.
    """
    most, V = run.recipe.rules_per_item, len(run.vocabulary)
    counts = count_for(run.recipe, log, split.train)
    if most is None and counts is None:
        return {}
    scorer = NetworkScorer(load_network(run, alone=True), events=run.encode_events(log))
    device = scorer.network.item_bias.device
    recent = None if counts is None else Recency(counts).to(device).lift()
    rules = others = None
    if most is not None:
        every = count_rules(split.train, V)
        rules = cut_rules(every, most).to(device)
        others = RulesOfOthers(rules, every, split.train)
    tried = try_weights(scorer, questions, rules=others, recent=recent)
    chosen = choose_weights(tried)
    if most is not None and split.counted is not split.train:
        rules = learn_rules(split.counted, V, most)
    keep_counts(run, log, rules, chosen)
    described: dict[str, Any] = {}
    if most is not None:
        by_rules = {f"{weights.rules:g}": value for weights, value in tried.items() if weights[1] == chosen[1]}
        described["rules"] = {"strength": chosen.rules, PRIMARY_METRIC: by_rules}
    if counts is not None:
        by_recency = {f"{weights.recency:g}": value for weights, value in tried.items() if weights[0] == chosen[0]}
        described["recency"] = {"weight": chosen.recency, PRIMARY_METRIC: by_recency}
    return described


def keep_counts(run: Run, log: Log, rules: SequentialRules | None, weights: Weights) -> None:
    """Keep the rules, and what was popular of late in the whole log, if the recipe wants it, with their weights."""
    recent = count_for(run.recipe, log, log.histories)
    if rules is not None:
        rules.strength.fill_(weights.rules)
        save_weights(run.rules, rules)
    if recent is not None:
        save_weights(run.recency, Recency(recent, weights.recency))
