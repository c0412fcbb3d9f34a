"""How much rules count beside a network: what serves the validation questions best. No test event has a say."""

from collections.abc import Mapping

import numpy as np
import torch

from model.nets.rules import Rules
from training.evaluation import NetworkScorer, rank_batch, show_batches, split_rows
from training.loop import WATCHED
from training.metrics import measure_ranks
from training.split import Questions

STRENGTHS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0)
"""Among these; 0 is the network alone."""


@torch.inference_mode()
def try_strengths(scorer: NetworkScorer, rules: Rules, questions: Questions) -> dict[float, float]:
    """NDCG@10 over validation questions by strength. The network, which has no rules yet, scores each question once."""
    config = scorer.network.config
    totals = dict.fromkeys(STRENGTHS, 0.0)
    with show_batches("questions", len(questions)) as answered:
        for rows in split_rows(questions, config.item_count):
            batch = questions.select(rows)
            alone = scorer.score(batch.histories)
            item_ids, _ = batch.histories.ask_next(max_length=config.max_length, mask_index=config.item_count + 1)
            lift = rules.lift(torch.from_numpy(item_ids).to(alone.device))[:, 1:-1]
            for strength in STRENGTHS:
                greater, ties, _ = rank_batch(alone + strength * lift, batch)
                totals[strength] += float(np.sum(measure_ranks(greater, ties)[WATCHED]))
            answered(len(rows))
    return {strength: total / len(questions) for strength, total in totals.items()}


def choose_strength(tried: Mapping[float, float]) -> float:
    """The best one, the least of equals."""
    return max(sorted(tried), key=lambda strength: tried[strength])
