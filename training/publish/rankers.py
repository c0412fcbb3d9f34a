"""Rankers make lists: by sorted scores of any model, or by the published graph, which is faster for many users."""

from typing import Any, Protocol

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.export.graph import export_network
from model.nets.network import SequenceNetwork
from training.data.histories import Histories
from training.errors import Diverged
from training.evaluation.ranking import NetworkScorer, Scorer, remove_seen

GRAPH_FROM = 5_000
"""Users from which on it pays to export the network first, which takes seconds
(docs/lab/2026-11-21-serving-beside-others.md)."""

Lists = tuple[NDArray[np.floating], NDArray[np.int64]]
"""Scores by falling value, -inf where nothing is left, and the item indexes, equal scores by index: both (B, K)."""


class Ranker(Protocol):
    """Finds the k best unseen items of B histories, at most `at_once` of them."""

    at_once: int

    def rank(self, histories: Histories, k: int) -> Lists:
        """The k best items that a history does not hold. Raises Diverged."""


class ScoreRanker:
    """Sorts the scores of all items."""

    at_once = 256

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    @torch.inference_mode()
    def rank(self, histories: Histories, k: int) -> Lists:
        """The k best items that a history does not hold. Raises Diverged."""
        scores = self._scorer.score(histories)
        if not bool(torch.isfinite(scores).all()):
            raise Diverged("a score is not a finite number")
        remove_seen(scores, histories)
        best, columns = _take_best(scores, min(k, self._scorer.item_count))
        return best, columns + 1


class GraphRanker:
    """Runs the graph that `publish` exports, exclusion and top-k inside, for networks that read items alone."""

    at_once = 32

    def __init__(self, scorer: NetworkScorer) -> None:
        network = scorer.network
        assert isinstance(network, SequenceNetwork)  # noqa: S101 - `choose_ranker` takes no other
        self._item_count, self._max_length = network.item_count, network.config.max_length
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            export_network(network), options, providers=["CPUExecutionProvider"]
        )

    def rank(self, histories: Histories, k: int) -> Lists:
        """The k best items that a history does not hold. Raises Diverged."""
        V = self._item_count
        item_ids, lengths = histories.query_next(max_length=self._max_length, mask_index=V + 1)
        feed: dict[str, NDArray[Any]] = {
            "item_ids": item_ids,
            "lengths": lengths,
            "exclude": histories.cut_windows(int(histories.lengths.max(initial=1))).item_ids,
            "candidates": np.zeros((len(histories), 1), dtype=np.int32),
            "k": np.array([min(k, V)], dtype=np.int64),
        }
        indexes, scores = self._session.run(["indexes", "scores"], feed)
        if np.isnan(scores).any() or np.isposinf(scores).any():
            raise Diverged("a score is not a finite number")
        return scores, indexes


def choose_ranker(scorer: Scorer, users: int) -> Ranker:
    """The graph for many users of a network that can be published and reads items alone; else sorted scores."""
    if users < GRAPH_FROM or not isinstance(scorer, NetworkScorer):
        return ScoreRanker(scorer)
    network = scorer.network
    if not isinstance(network, SequenceNetwork) or network.event_inputs or network.item_bias.is_cuda:
        return ScoreRanker(scorer)
    return GraphRanker(scorer)


def _take_best(scores: Tensor, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The k best columns of each row by falling score, equal scores by column: values and columns (B, k)."""
    values, columns = scores.topk(k, dim=1)
    cut = values[:, -1:]
    unsure = (scores == cut).sum(dim=1) > (values == cut).sum(dim=1)  # equal scores on both sides of the cut
    if bool(unsure.any()):
        again, order = scores[unsure].sort(dim=1, descending=True, stable=True)
        values[unsure], columns[unsure] = again[:, :k], order[:, :k]
    best, positions = values.cpu().double().numpy(), columns.cpu().numpy()
    order_within = np.lexsort((positions, -best), axis=1)
    return np.take_along_axis(best, order_within, axis=1), np.take_along_axis(positions, order_within, axis=1)
