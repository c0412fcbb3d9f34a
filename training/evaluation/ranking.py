"""Ranking: all items or those that a protocol drew are candidates; what becomes of seen ones is the protocol's."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from model.nets.network import Network, SequenceNetwork, UserNetwork
from training.data.histories import Histories
from training.data.split import Questions
from training.errors import Diverged
from training.evaluation.metrics import LIST_LENGTH, UNLISTED, measure_coverage, measure_popularity, measure_ranks
from training.evaluation.protocol import MISSED, EvaluationTask

_SCORES_AT_ONCE = 2**21
"""Small enough for malloc to reuse: larger blocks are given back to the system and faulted in again for each batch."""


class Scorer(Protocol):
    """Scores all items after each of B histories: (B, V), column j for the item of index j + 1."""

    @property
    def item_count(self) -> int:
        """V."""

    def score(self, histories: Histories) -> Tensor:
        """Scores of all items, a tensor that the caller may overwrite."""


class NetworkScorer:
    """A network that appends [mask] to each history and reads its output there.

    A network of users needs the log's histories, which give the user of each history. `events` are the event features
    of a network that reads them: one array for each input, flat as the log's items. Without them it still scores.
    `lift` is what rules add to the network's scores where they are not the network's own: given the histories and the
    item ids (B, T) of their queries, it returns (B, V).
    """

    def __init__(
        self,
        network: Network,
        log: Histories | None = None,
        events: Sequence[NDArray[Any]] = (),
        lift: Callable[[Histories, Tensor], Tensor] | None = None,
    ) -> None:
        if isinstance(network, UserNetwork) and log is None:
            raise ValueError("a network of users wants to know the log")
        self.network = network
        self.item_count = network.item_count
        self._log = log if isinstance(network, UserNetwork) else None
        self._events, self._lift = events, lift

    @torch.inference_mode()
    def score(self, histories: Histories) -> Tensor:
        """Scores of all items (B, V), on the network's device."""
        config = self.network.config
        given: list[NDArray[Any]] = [
            *histories.query_next(max_length=config.max_length, mask_index=self.item_count + 1)
        ]
        if self._log is not None:
            given.append(self._log.find_owners(histories))
        names = self.network.event_inputs if self._events and isinstance(self.network, SequenceNetwork) else ()
        for name, features in zip(names, self._events, strict=True):
            read = histories.query_times if name == "times" else histories.query_side_input
            given.append(read(features, max_length=config.max_length))
        device = self.network.item_bias.device
        self.network.eval()
        inputs = [torch.from_numpy(array).to(device) for array in given]
        scores: Tensor = self.network(*inputs)
        return scores if self._lift is None else scores + self._lift(histories, inputs[0])


@dataclass(frozen=True)
class Ranks:
    """The ranks of the targets of B questions."""

    greater: NDArray[np.int64]
    """How many candidates score higher than the target (B), UNLISTED where it is in no list."""
    ties: NDArray[np.int64]
    """How many other candidates score the same (B)."""
    lists: NDArray[np.int32]
    """The indexes of the best K of all items, best first, 0 where there are fewer (B, K)."""


def rank_targets(
    scorer: Scorer,
    questions: Questions,
    *,
    negatives: NDArray[np.int32] | None = None,
    removes_seen: bool = True,
    misses_repeated: bool = True,
    K: int = 0,
    on_questions: Callable[[int], object] | None = None,
) -> Ranks:
    """Rank each target among all items, or among its row of negatives (B, N). Raises Diverged.

    `removes_seen` and `misses_repeated` are those of `rank_batch`. `on_questions` is called with the number of
    questions of each batch.
    """
    B = len(questions)
    greater, ties = np.zeros(B, dtype=np.int64), np.zeros(B, dtype=np.int64)
    lists = np.zeros((B, min(K, scorer.item_count)), dtype=np.int32)
    for rows in split_rows(questions, scorer.item_count):
        batch = questions.select(rows)
        drawn = None if negatives is None else negatives[rows]
        greater[rows], ties[rows], lists[rows] = rank_batch(
            scorer.score(batch.histories),
            batch,
            drawn,
            removes_seen=removes_seen,
            misses_repeated=misses_repeated,
            K=lists.shape[1],
        )
        if on_questions:
            on_questions(len(rows))
    return Ranks(greater, ties, lists)


def split_rows(questions: Questions, item_count: int) -> Iterator[NDArray[np.int64]]:
    """The questions in batches, by row, that hold little padding and are scored at once."""
    by_length = np.argsort(questions.histories.lengths, kind="stable")
    step = int(np.clip(_SCORES_AT_ONCE // item_count, 1, 256))
    for begin in range(0, len(by_length), step):
        yield by_length[begin : begin + step]


@torch.inference_mode()
def rank_batch(
    scores: Tensor,
    questions: Questions,
    negatives: NDArray[np.int32] | None = None,
    *,
    removes_seen: bool = True,
    misses_repeated: bool = True,
    K: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rank the targets of B questions by scores (B, V), which are overwritten: what `Ranks` holds. Raises Diverged.

    With `removes_seen` items of a history are no candidates; the target is one nevertheless, unless `misses_repeated`:
    then one that was seen before is in no list (metrics.py, UNLISTED). Without `removes_seen` none is missed.
    """
    least, most = torch.aminmax(scores)  # one pass without a copy, and no number is neither least nor most
    if not bool(torch.isfinite(least) & torch.isfinite(most)):
        raise Diverged("a score is not a finite number")
    columns = torch.from_numpy(questions.targets.astype(np.int64) - 1).to(scores.device)[:, None]
    target = scores.gather(1, columns)
    if removes_seen:
        remove_seen(scores, questions.histories)
    best, positions = scores.topk(K, dim=1)
    lists = torch.where(torch.isfinite(best), positions + 1, 0)
    if negatives is None:
        scores.scatter_(1, columns, -torch.inf)  # the target does not compete with itself, seen before or not
        rivals = scores
    else:
        rivals = scores.gather(1, torch.from_numpy(negatives.astype(np.int64) - 1).to(scores.device))
    greater, ties = _count(rivals > target), _count(rivals == target)
    if removes_seen and misses_repeated:
        repeated = questions.repeated
        greater[repeated], ties[repeated] = UNLISTED, 0
    return greater, ties, lists.cpu().numpy()


def _count(hits: Tensor) -> NDArray[np.int64]:
    """How many of each row (B, V) hold: numpy counts bytes, where torch makes numbers of them first."""
    counts: NDArray[np.int64] = np.count_nonzero(hits.cpu().numpy(), axis=1)
    return counts


def remove_seen(scores: Tensor, histories: Histories) -> None:
    """Set the scores (B, V) of every item of each history to -inf, in place."""
    rows, items = histories.flatten()
    positions = torch.from_numpy(rows * scores.shape[1] + items - 1).to(scores.device)
    scores.view(-1)[positions] = -torch.inf


def evaluate(scorer: Scorer, questions: Questions) -> dict[str, NDArray[np.float64]]:
    """Every metric of every question by name, all items ranked, seen ones removed, repeated targets missed."""
    ranks = rank_targets(scorer, questions)
    return measure_ranks(ranks.greater, ranks.ties)


@dataclass(frozen=True)
class Scores:
    """The results of a scorer on an evaluation task."""

    ranks: Ranks
    values: dict[str, NDArray[np.float64]]
    """Every metric of every question, by name."""
    coverage: float


def evaluate_task(scorer: Scorer, task: EvaluationTask) -> Scores:
    """Evaluate a scorer on a task. A terminal shows a progress bar. Raises Diverged."""
    with show_batches("questions", len(task.questions)) as answered:
        ranks = rank_targets(
            scorer,
            task.questions,
            negatives=task.negatives,
            removes_seen=task.protocol.seen_items == "removed",
            misses_repeated=task.protocol.repeated_targets == MISSED,
            K=LIST_LENGTH,
            on_questions=answered,
        )
    popularity = measure_popularity(ranks.lists, task.popularity)
    values = {**measure_ranks(ranks.greater, ranks.ties), f"popularity@{LIST_LENGTH}": popularity}
    return Scores(ranks, values, measure_coverage(ranks.lists, scorer.item_count))


@contextmanager
def show_batches(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal. Yields a function to call with the size of each finished batch."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.advance(task, count)
