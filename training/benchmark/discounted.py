"""The same network with popularity taken off its scores, for protocols that draw their negatives by popularity.

They ask who can tell p from q, and the scores that say how likely an item is are no answer to that
(docs/reference/protocols.md).
How much is taken off is chosen on validation questions, with negatives drawn by training events: no test event has a
say.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.histories import Histories
from training.data.split import Questions, Split, count_items
from training.evaluation.metrics import PRIMARY_METRIC, measure_ranks
from training.evaluation.protocol import NEGATIVES, EvaluationTask
from training.evaluation.ranking import Scorer, evaluate_task, split_rows
from training.evaluation.results import describe_scores
from training.evaluation.sampled_candidates import draw_popular
from training.runs.popularity_discount import take_logs

DISCOUNTS = (0.0, 0.3, 0.5, 0.8, 1.0, 1.3, 1.6, 2.0, 2.5, 3.0)
"""Among these; 0 leaves the scores alone."""


class Discounted:
    """A scorer with so many times the log of its share of the training events, `logs` (V), off each item's score."""

    def __init__(self, scorer: Scorer, logs: Tensor, discount: float) -> None:
        self.item_count = scorer.item_count
        self._scorer = scorer
        self._logs = discount * logs

    def score(self, histories: Histories) -> Tensor:
        """Scores of all items (B, V)."""
        scores = self._scorer.score(histories)
        return scores - self._logs.to(scores.device)


def evaluate_discounted(scorer: Scorer, task: EvaluationTask, split: Split) -> dict[str, Any] | None:
    """What the discount that validation prefers comes to, or None where no negative is drawn by popularity."""
    if not task.protocol.negatives.startswith("popular"):
        return None
    counts = count_items(split.train, scorer.item_count)
    logs = torch.from_numpy(take_logs(counts))
    unseen = task.protocol.negatives == "popular-unseen"
    rng = np.random.default_rng(task.seed)
    negatives = draw_popular(split.validation, counts, NEGATIVES, rng, unseen=unseen)
    tried = try_discounts(scorer, split.validation, negatives, logs)
    chosen = max(sorted(tried), key=lambda discount: tried[discount])
    scores = evaluate_task(Discounted(scorer, logs, chosen), task)
    return {
        "by": chosen,
        "tried": {f"{discount:g}": value for discount, value in tried.items()},
        "metrics": describe_scores(scores, task.seed),
    }


@torch.inference_mode()
def try_discounts(
    scorer: Scorer, questions: Questions, negatives: NDArray[np.int32], logs: Tensor
) -> dict[float, float]:
    """NDCG@10 of targets among their negatives (B, N) by discount. Each question is scored once."""
    totals = dict.fromkeys(DISCOUNTS, 0.0)
    candidates = np.concatenate([questions.targets[:, None], negatives], axis=1).astype(np.int64) - 1
    for rows in split_rows(questions, scorer.item_count):
        columns = torch.from_numpy(candidates[rows])
        scores = scorer.score(questions.histories.select(rows)).cpu().gather(1, columns)
        for discount in DISCOUNTS:
            ranked = scores - discount * logs[columns]
            greater, ties = (ranked[:, 1:] > ranked[:, :1]).sum(dim=1), (ranked[:, 1:] == ranked[:, :1]).sum(dim=1)
            totals[discount] += float(measure_ranks(greater.numpy(), ties.numpy())[PRIMARY_METRIC].sum())
    return {discount: total / len(questions) for discount, total in totals.items()}
