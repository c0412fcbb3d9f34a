"""The model in use: one immutable object. Whoever answers a request takes the reference once and asks nothing else."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from model.contract.bundle import Bundle, read_bundle
from model.contract.golden import Golden, difference
from model.contract.manifest import BundleError, Manifest
from model.contract.sequence import align_right, encode_histories
from model.contract.vocabulary import Vocabulary
from service.engine import CUDA, INPUTS, Engine, open_engine
from service.errors import EngineUnavailable, StartFailed
from service.popular import Popular

CPU_TOLERANCE = 1e-4
CUDA_TOLERANCE = 1e-2
"""How far a score may lie from the trainer's. GPUs multiply float32 matrices with fewer bits (TF32)."""


class Row(NamedTuple):
    """One question in indexes: the known history, what never to answer, what alone to answer, and how many."""

    history: NDArray[np.int32]
    exclude: NDArray[np.int32]
    candidates: NDArray[np.int32] | None
    k: int


class Ranking(NamedTuple):
    """One answer: item ids, best first, and their scores."""

    item_ids: list[str]
    scores: list[float]


@dataclass(frozen=True)
class LiveModel:
    """A loaded and checked bundle."""

    manifest: Manifest
    digest: str
    vocabulary: Vocabulary
    engine: Engine
    popular: Popular
    metadata: tuple[bytes, ...] | None

    def encode(
        self,
        *,
        history: Sequence[str],
        exclude: Iterable[str],
        candidates: Collection[str] | None,
        k: int,
        exclude_history: bool,
    ) -> Row:
        """Turn one question into indexes; items that the model does not know drop out."""
        known = self.vocabulary.encode_known(history)
        excluded = self.vocabulary.encode_known(exclude)
        return Row(
            history=known,
            exclude=np.concatenate([excluded, known]) if exclude_history else excluded,
            candidates=None if candidates is None else self.vocabulary.encode_known(candidates),
            k=min(k, len(self.vocabulary)),
        )

    def make_feed(self, rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
        """Stack B rows into the graph's inputs, k being the largest asked for."""
        mask_index = self.vocabulary.mask_index
        item_ids, lengths = encode_histories(
            [row.history for row in rows], max_length=self.manifest.max_length, mask_index=mask_index
        )
        # Nothing but PAD would not restrict; [mask], which is never an answer, restricts to nothing.
        nothing = np.array([mask_index], dtype=np.int32)
        candidates: list[NDArray[np.int32] | tuple[()]] = [
            () if row.candidates is None else row.candidates if len(row.candidates) else nothing for row in rows
        ]
        return {
            "item_ids": item_ids,
            "lengths": lengths,
            "exclude": align_right([row.exclude for row in rows]).item_ids,
            "candidates": align_right(candidates).item_ids,
            "k": np.array([max(row.k for row in rows)], dtype=np.int64),
        }

    def decode(self, indexes: NDArray[np.int64], scores: NDArray[np.float32], *, k: int) -> Ranking:
        """Turn one row of the graph's answer into the first k ids and scores, less where less was left to rank."""
        indexes, scores = indexes[:k], scores[:k]
        kept = scores != -np.inf
        return Ranking(self.vocabulary.decode(indexes[kept].tolist()), scores[kept].tolist())

    def rank_popular(self, row: Row) -> Ranking:
        """Answer from the popular list instead; the score is the item's count."""
        indexes, counts = self.popular.rank(exclude=row.exclude, candidates=row.candidates, k=row.k)
        return Ranking(self.vocabulary.decode(indexes.tolist()), counts.astype(np.float64).tolist())

    def describe_item(self, item_id: str) -> dict[str, Any] | None:
        """An item's metadata, empty where the bundle has none, or None for an item that the model does not know."""
        if item_id not in self.vocabulary:
            return None
        if self.metadata is None:
            return {}
        metadata: dict[str, Any] = orjson.loads(self.metadata[self.vocabulary.index_of(item_id) - 1])
        return metadata


def load_model(path: Path, *, provider: Literal["auto", "cuda", "cpu"], threads: int, max_batch: int) -> LiveModel:
    """Read, verify, load, examine and warm up a bundle. Raises StartFailed saying what is wrong with it."""
    try:
        bundle = read_bundle(path)
    except BundleError as error:
        raise StartFailed(f"the bundle cannot be used: {error}") from error
    if set(bundle.manifest.inputs) != set(INPUTS):
        raise StartFailed(
            f"the bundle's network wants {', '.join(bundle.manifest.inputs)}; this version gives {', '.join(INPUTS)}"
        )
    _check_metadata(bundle)
    model = LiveModel(
        manifest=bundle.manifest,
        digest=bundle.digest,
        vocabulary=bundle.vocabulary,
        engine=open_engine(bundle.network, item_count=bundle.manifest.item_count, provider=provider, threads=threads),
        popular=Popular.from_order(bundle.rank_popular(), bundle.counts),
        metadata=bundle.metadata,
    )
    try:
        _examine(model, bundle.golden)
        _warm_up(model, max_batch)
    except EngineUnavailable as error:
        raise StartFailed(f"the bundle's network does not run: {error}") from error
    return model


def _check_metadata(bundle: Bundle) -> None:
    for number, line in enumerate(bundle.metadata or (), start=1):
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise StartFailed(f"the bundle cannot be used: line {number} of its metadata is no JSON object")


def _examine(model: LiveModel, golden: Sequence[Golden]) -> None:
    """Ask every golden example, alone and all in one batch, through the same steps as a request."""
    tolerance = CUDA_TOLERANCE if model.engine.provider == CUDA else CPU_TOLERANCE
    rows = [
        model.encode(
            history=example.items,
            exclude=example.exclude,
            candidates=example.candidates or None,
            k=example.k,
            exclude_history=False,
        )
        for example in golden
    ]
    everything = list(zip(golden, rows, strict=True))
    for asked in [*([one] for one in everything), everything] if everything else ():
        ranked = model.engine.rank(model.make_feed([row for _, row in asked]))
        for (example, row), indexes, scores in zip(asked, ranked.indexes, ranked.scores, strict=True):
            ranking = model.decode(indexes, scores, k=row.k)
            fault = difference(example, ranking.item_ids, ranking.scores, tolerance=tolerance)
            if fault is not None:
                raise StartFailed(f"the bundle's network does not answer as its trainer did: {fault}")


def _warm_up(model: LiveModel, max_batch: int) -> None:
    """Run the shapes that take longest once, so that no request pays for first allocations."""
    longest = np.resize(np.arange(1, len(model.vocabulary) + 1, dtype=np.int32), model.manifest.max_length)
    row = Row(history=longest, exclude=longest[:0], candidates=None, k=min(10, len(model.vocabulary)))
    for size in (max_batch, 1):
        model.engine.rank(model.make_feed([row] * size))
