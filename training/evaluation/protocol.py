"""The evaluation protocols of published numbers, as code. docs/reference/protocols.md lists the papers of each.

Two numbers compare only under one protocol. A protocol decides how the log is split, which test questions there are,
among which items the target is ranked, and which events baselines count.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from training.arguments.names import REPEATED_TARGETS
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.split import Questions, Split, count_items, cut_log
from training.errors import DataError, InputError, RunError
from training.evaluation.sampled_candidates import draw_popular, draw_uniform
from training.recipe import DataRecipe

SEED = 12345
"""The default seed of all draws in an evaluation, as in the code of the BERT4Rec authors."""
NEGATIVES = 100
KEPT, MISSED, DROPPED = REPEATED_TARGETS


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One evaluation protocol."""

    name: str
    summary: str
    split: str = "leave-one-out"
    held_out_users: int | None = None
    """A baseline leaves out the validation events of so many users; None: of all users."""
    negatives: str = "none"
    """none: the target is ranked among all items; popular or popular-unseen: among 100 distinct ones drawn by their
    share of all events, the second not from the history; uniform: among 100 drawn evenly with replacement."""
    seen_items: str = "removed"
    """removed or kept, as candidates: SEEN_ITEMS of arguments.py."""
    repeated_targets: str = MISSED
    """One of REPEATED_TARGETS of arguments.py: what the code behind the published numbers does."""
    most_users: int | None = None
    known_targets: bool = False
    """Whether a target that is not in the training data makes no question."""
    least_events: int = 1
    """How many events every user and item of the log has in the published numbers."""
    counts_everything: bool = False
    """Whether popularity counts the whole file, test events included, as the authors' code does."""

    def cut(self, log: Log, recipe: DataRecipe) -> Split:
        """Split a log for a baseline: by the recipe, and by the protocol where the recipe leaves a choice."""
        held_out = self.held_out_users if recipe.held_out_users is None else recipe.held_out_users
        return cut_log(log, self.split, held_out_users=held_out, test_share=recipe.test_share)

    def vary(self, *, seen_items: str | None = None, repeated_targets: str | None = None) -> "Protocol":
        """The same with another treatment of seen items and repeated targets, None: the protocol's own.

        Where seen items stay, so do repeated targets unless they are dropped. Raises InputError.
        """
        if seen_items not in (None, self.seen_items) and self.negatives != "none":
            raise InputError(f"--seen-items applies to protocols that rank all items, {self.name} draws some")
        seen_items = seen_items or self.seen_items
        if seen_items == "kept":
            if repeated_targets == MISSED:
                raise InputError("a repeated target is missed only where seen items are removed: --seen-items removed")
            repeated_targets = repeated_targets or (KEPT if self.repeated_targets == MISSED else None)
        return replace(self, seen_items=seen_items, repeated_targets=repeated_targets or self.repeated_targets)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name="P1",
            summary="leave-one-out, the target among 100 unseen items drawn by popularity",
            held_out_users=0,
            negatives="popular-unseen",
            repeated_targets=KEPT,
            counts_everything=True,
        ),
        Protocol(
            name="P1a",
            summary="leave-one-out, the target among 100 items drawn by popularity, the seen ones then removed",
            held_out_users=2048,
            negatives="popular",
            known_targets=True,
        ),
        Protocol(name="P2", summary="leave-one-out, all items ranked, seen items removed"),
        Protocol(
            name="P5", summary="leave-one-out on a 5-core log, all items ranked, seen items removed", least_events=5
        ),
        Protocol(
            name="P6s",
            summary="leave-one-out on a 5-core log, all items ranked, seen items kept",
            least_events=5,
            seen_items="kept",
            repeated_targets=KEPT,
        ),
        Protocol(
            name="P7",
            summary="leave-one-out, at most 10,000 users, the target among 100 items drawn evenly",
            negatives="uniform",
            seen_items="kept",
            repeated_targets=KEPT,
            most_users=10_000,
        ),
        Protocol(
            name="time",
            summary="one moment parts all users' events, each user's next event, all items ranked, seen items removed",
            split="time",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class EvaluationTask:
    """What a protocol asks of a log: the same questions for every model."""

    protocol: Protocol
    seed: int
    questions: Questions
    dropped: int
    """Questions that were not asked, since their targets are repeated."""
    held_out_users: int
    """How many users' event before the test is in no training data; under `time` how many have one that validates."""
    negatives: NDArray[np.int32] | None
    """(B, 100) items to rank the target among, or None for all."""
    popularity: NDArray[np.float64]
    """Of each item (V) the share of the other items that are less popular in the training data, equals half."""


def build_task(protocol: Protocol, log: Log, split: Split, seed: int = SEED) -> EvaluationTask:
    """Choose the questions and draw the negatives. Raises DataError where none is left."""
    V = len(log.vocabulary)
    rng = np.random.default_rng(seed)
    trained = count_items(split.train, V)
    questions = split.test
    if protocol.known_targets:
        questions = questions.select(np.flatnonzero(trained[questions.targets - 1]))
    asked = len(questions)
    if protocol.repeated_targets == DROPPED:
        questions = questions.select(np.flatnonzero(~questions.repeated))
        if asked and not len(questions):
            raise DataError(f"{protocol.name} drops repeated targets, and every target is one: --repeated-targets kept")
    dropped = asked - len(questions)
    if protocol.most_users is not None and len(questions) > protocol.most_users:
        questions = questions.select(np.sort(rng.permutation(len(questions))[: protocol.most_users]))
    negatives = None
    if protocol.negatives == "uniform":
        histories = questions.histories
        train = Histories(histories.items, histories.starts, histories.ends - 1)  # the validation event can be drawn
        negatives = draw_uniform(questions, V, NEGATIVES, rng, but=train)
    elif protocol.negatives != "none":
        counts = count_items(log.histories, V)
        unseen = protocol.negatives == "popular-unseen"
        negatives = draw_popular(questions, counts, NEGATIVES, rng, unseen=unseen)
    return EvaluationTask(
        protocol=protocol,
        seed=seed,
        questions=questions,
        dropped=dropped,
        held_out_users=len(split.validation),
        negatives=negatives,
        popularity=_rank_popularity(trained),
    )


def require_split(protocol: Protocol, begun: DataRecipe, now: DataRecipe, run: object) -> None:
    """Refuse to test a run on events that it was trained on. Raises RunError."""
    if begun.split != protocol.split:
        raise RunError(
            f"{run} was trained with data.split = {begun.split}, so the test events of protocol {protocol.name} are "
            f"partly in its training data: train another run with --set data.split={protocol.split}"
        )
    if begun.split == "time" and begun.test_share != now.test_share:
        raise RunError(
            f"{run} was trained with data.test_share = {begun.test_share:g}, not {now.test_share:g}: "
            "the moment of the split must stay the same"
        )


def find_fault(protocol: Protocol, log: Log) -> str | None:
    """Why numbers on this log do not compare with the protocol's published ones, if they do not."""
    least = _count_least(log)
    if least >= protocol.least_events:
        return None
    n = protocol.least_events
    return (
        f"published numbers under {protocol.name} are of logs in which every user and item has {n} events, "
        f"here one has {least}: --set data.min_user_events={n} --set data.min_item_events={n}"
    )


def find_twin(protocol: Protocol, log: Log) -> str | None:
    """Which other protocol asks the same on this log, if one does: P5 is P2 on logs where everything is frequent."""
    least = PROTOCOLS["P5"].least_events
    if protocol.name != "P2" or _count_least(log) < least:
        return None
    return f"every user and item of this log has {least} events, so P2 on this log equals P5"


def _count_least(log: Log) -> int:
    """The fewest events that a user or an item of the log has."""
    return int(min(count_items(log.histories, len(log.vocabulary)).min(), log.histories.lengths.min()))


def _rank_popularity(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    ordered = np.sort(counts)
    less, upto = np.searchsorted(ordered, counts, side="left"), np.searchsorted(ordered, counts, side="right")
    shares: NDArray[np.float64] = (less + upto - 1) / 2 / max(1, len(counts) - 1)
    return shares
