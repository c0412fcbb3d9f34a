"""The weight of sequential rules beside a network, chosen on validation questions. Test events play no part.

Nor does a user's own training history answer his question: it names what he meets again, and so would have rules weigh
more than they are worth (docs/decisions/0031).
"""

from collections.abc import Mapping

import numpy as np
import torch

from training.baselines.rules_of_others import RulesOfOthers
from training.data.split import Questions
from training.evaluation.metrics import PRIMARY_METRIC, measure_ranks
from training.evaluation.ranking import NetworkScorer, rank_batch, show_batches, split_rows

RULE_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
"""The candidates; 0 is the network alone."""


@torch.inference_mode()
def try_rule_weights(scorer: NetworkScorer, rules: RulesOfOthers, questions: Questions) -> dict[float, float]:
    """NDCG@10 over validation questions by rule weight. The network, without rules, scores each question once."""
    network, max_length = scorer.network, scorer.network.config.max_length
    totals = dict.fromkeys(RULE_WEIGHTS, 0.0)
    with show_batches("questions", len(questions)) as answered:
        for rows in split_rows(questions, network.item_count):
            batch = questions.select(rows)
            alone = scorer.score(batch.histories)
            item_ids, _ = batch.histories.query_next(max_length=max_length, mask_index=network.item_count + 1)
            lift = rules.lift(batch.histories, torch.from_numpy(item_ids))
            for rule_weight in RULE_WEIGHTS:
                greater, ties, _ = rank_batch(alone + rule_weight * lift, batch)
                totals[rule_weight] += float(np.sum(measure_ranks(greater, ties)[PRIMARY_METRIC]))
            answered(len(rows))
    return {rule_weight: total / len(questions) for rule_weight, total in totals.items()}


def choose_rule_weight(tried: Mapping[float, float]) -> float:
    """The best one, the least of equals."""
    return max(sorted(tried), key=lambda rule_weight: tried[rule_weight])
