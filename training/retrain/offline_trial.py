"""The offline trial: candidate and champion answer the same questions from the graphs that are served.

An item that a model does not know is a miss, so each is asked about the items of both. Users are drawn in pairs, with
all their questions (training/evaluation/bootstrap.py). The candidate passes if the low end of the 95 % interval of
NDCG_new - 0.98 NDCG_old is above 0: it may lose 2 %, and must be shown not to lose more. And it must be shown to rank
better by the histories that the questions are asked with than by those of other users (history_gain.py).

Feedback is on what was shown, so that the comparison favours the model that answered (arXiv 2104.08912); the live
trial does not.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.contract.bundle import Bundle
from model.contract.event_inputs import ABSENT
from model.contract.query import INPUTS, OUTPUTS, Question, stack_questions
from model.contract.vocabulary import UNKNOWN, Vocabulary
from model.export.graph import export_network
from model.nets.network import SequenceNetwork
from training.data.event_features import EventFeatures
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.split import Questions
from training.evaluation.bootstrap import estimate_clustered_intervals
from training.evaluation.metrics import LIST_LENGTH, PRIMARY_METRIC, UNLISTED, measure_gain, measure_hits
from training.evaluation.ranking import Scorer, rank_targets, show_batches
from training.retrain.held_out import LEAST_QUESTIONS

KEPT_SHARE = 0.98
"""Share of the champion's NDCG@10 that a candidate must be shown to reach."""
CANDIDATE, CHAMPION = "candidate", "champion"
METRICS = (PRIMARY_METRIC, "HR@10")
_SEED = 12345
_AT_ONCE = 64

Document = dict[str, Any]
Gains = Mapping[str, NDArray[np.float64]]
"""Each of METRICS, of every question (B)."""


@dataclass(frozen=True)
class Graph:
    """A graph that ranks, with what asking it takes."""

    network: bytes
    vocabulary: Vocabulary
    max_length: int
    inputs: tuple[str, ...]
    event_types: tuple[str, ...] = ()

    @classmethod
    def of_bundle(cls, bundle: Bundle) -> "Graph":
        """The graph of a bundle."""
        manifest = bundle.manifest
        return cls(bundle.network, bundle.vocabulary, manifest.max_length, manifest.inputs, bundle.event_types)

    @classmethod
    def of_network(cls, network: SequenceNetwork, vocabulary: Vocabulary, event_types: Sequence[str] = ()) -> "Graph":
        """The graph that a network is exported to."""
        inputs = (*INPUTS, *network.event_inputs)
        return cls(export_network(network), vocabulary, network.config.max_length, inputs, tuple(event_types))


def answer_questions(graph: Graph, log: Log, questions: Questions, *, excluded: Histories | None = None) -> Gains:
    """Ask a graph each question, items of the history excluded, and measure where the target stands in its answer.

    Items of `excluded`, a further history for each question, are not answered either. The target itself is in no
    history, whatever they say.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # inputs with defaults are meant to be no constants
    session = onnxruntime.InferenceSession(graph.network, options, providers=["CPUExecutionProvider"])
    index_of = np.append(UNKNOWN, graph.vocabulary.encode(log.vocabulary.item_ids))
    events = _encode_events(graph, log)
    places = np.full(len(questions), UNLISTED, dtype=np.int64)
    by_length = np.argsort(questions.histories.lengths, kind="stable")
    with show_batches("questions", len(questions)) as answered:
        for begin in range(0, len(by_length), _AT_ONCE):
            rows = by_length[begin : begin + _AT_ONCE]
            asked = [_encode(questions, int(row), index_of, graph, events) for row in rows]
            if excluded is not None:
                asked = [
                    _exclude(question, index_of[excluded[int(row)]], index_of[questions.targets[row]])
                    for question, row in zip(asked, rows, strict=True)
                ]
            feed = stack_questions(
                asked, max_length=graph.max_length, mask_index=graph.vocabulary.mask_index, inputs=graph.inputs
            )
            indexes, scores = session.run(OUTPUTS, feed)
            found = (indexes == index_of[questions.targets[rows]][:, None]) & np.isfinite(scores)
            places[rows[found.any(axis=1)]] = found.argmax(axis=1)[found.any(axis=1)]
            answered(len(rows))
    return _measure(places, np.zeros_like(places))


def answer_by_counting(scorer: Scorer, questions: Questions) -> Gains:
    """The same of a baseline."""
    with show_batches("questions", len(questions)) as answered:
        ranks = rank_targets(scorer, questions, on_questions=answered)
    return _measure(ranks.greater, ranks.ties)


def judge(gains: Mapping[str, Gains], owners: NDArray[np.int64], history_gain: NDArray[np.float64]) -> Document:
    """The result of a trial: every model's means, the candidate's lead over the champion and over rules, the verdict.

    `history_gain` (B) is what the true history adds to the candidate's NDCG@10. Intervals are of 95 %, over users
    (B owners of the questions) drawn with all their questions.
    """
    new, old = (gains[name][PRIMARY_METRIC] for name in (CANDIDATE, CHAMPION))
    lead, by_history = _describe(new - KEPT_SHARE * old, owners), _describe(history_gain, owners)
    enough = len(owners) >= LEAST_QUESTIONS
    return {
        "questions": len(owners),
        "users": len(np.unique(owners)),
        "models": {
            name: {metric: _describe(found[metric], owners) for metric in METRICS} for name, found in gains.items()
        },
        "kept_share": KEPT_SHARE,
        "difference": _describe(new - old, owners),
        "lead": lead,
        "over_rules": _describe(new - gains["rules"][PRIMARY_METRIC], owners) if "rules" in gains else None,
        "history_gain": by_history,
        "passed": enough and lead["low"] > 0 and by_history["low"] > 0,
        "why": _explain(lead, by_history, len(owners)),
    }


def _explain(lead: Mapping[str, float], by_history: Mapping[str, float], questions: int) -> str:
    if questions < LEAST_QUESTIONS:
        return f"{questions} questions are too few to say: it takes {LEAST_QUESTIONS}"
    shown = (
        f"{PRIMARY_METRIC} over {KEPT_SHARE:g} times the champion's: {lead['value']:+.4f}, {lead['low']:+.4f} at least"
    )
    if lead["low"] > 0 and by_history["low"] <= 0:
        shown = (
            "histories are not shown to help it, as in a log whose order says nothing: a user's own adds "
            f"{by_history['value']:+.4f} to its {PRIMARY_METRIC} with another's, {by_history['low']:+.4f} at least"
        )
    return f"{shown} (95 %, {questions:,} questions)"


def _describe(values: NDArray[np.float64], owners: NDArray[np.int64]) -> dict[str, float]:
    low, high = estimate_clustered_intervals(values[:, None], owners, _SEED)
    return {"value": float(values.mean()), "low": float(low[0]), "high": float(high[0])}


def _measure(greater: NDArray[np.int64], ties: NDArray[np.int64]) -> Gains:
    measured = (measure_gain(greater, ties, LIST_LENGTH), measure_hits(greater, ties, LIST_LENGTH))
    return dict(zip(METRICS, measured, strict=True))


def _encode(
    questions: Questions, row: int, index_of: NDArray[np.int32], graph: Graph, events: Mapping[str, NDArray[Any]]
) -> Question:
    """A question in the graph's indexes: the known items of the history, which are excluded, and their events."""
    histories = questions.histories
    stretch = slice(int(histories.starts[row]), int(histories.ends[row]))
    indexes = index_of[histories.items[stretch]].astype(np.int32)
    known = (indexes != UNKNOWN) & (indexes != index_of[questions.targets[row]])
    features = {name: column[stretch][known] for name, column in events.items()} or None
    return Question(
        history=indexes[known],
        exclude=np.unique(indexes[known]),
        candidates=None,
        k=min(LIST_LENGTH, len(graph.vocabulary)),
        events=features,
        asked_ms=0 if histories.asked_ms is None else int(histories.asked_ms[row]),
    )


def _exclude(question: Question, items: NDArray[np.int32], target: int) -> Question:
    """The same question with more items (H) that are not answered, unknown ones and the target left out."""
    further = items[(items != UNKNOWN) & (items != target)]
    return question._replace(exclude=np.union1d(question.exclude, further).astype(np.int32))


def _encode_events(graph: Graph, log: Log) -> dict[str, NDArray[Any]]:
    """The event features that the graph reads, flat as the log's items; those that the log lacks are absent."""
    wanted = [name for name in ABSENT if name in graph.inputs]
    there = {"types": log.types is not None, "values": log.values is not None, "times": log.timestamps_ms is not None}
    known = [name for name in wanted if there[name]]
    encoded = EventFeatures(dict.fromkeys(known, ()), graph.event_types).encode(log)
    found = dict(zip(known, encoded, strict=True))
    return {name: found.get(name, np.full(len(log.items), ABSENT[name])) for name in wanted}
