"""The model in use: one immutable object. Whoever answers a request takes the reference once and asks nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from model.contract.behaviour import ABSENT
from model.contract.bundle import Bundle, read_bundle
from model.contract.golden import Golden, examine
from model.contract.manifest import BundleError, Manifest
from model.contract.question import INPUTS, Answer, Question, decode_answers, is_signature, stack_questions
from model.contract.vocabulary import Vocabulary
from service.buckets import list_buckets
from service.engine import CUDA, CUDA_TOLERANCE, Engine, open_engine
from service.errors import EngineUnavailable, StartFailed
from service.neighbours import Neighbours
from service.popular import Popular

CPU_TOLERANCE = 1e-4
"""How far a score may lie from the trainer's, on a CPU."""


@dataclass(frozen=True)
class LiveModel:
    """A loaded and checked bundle."""

    manifest: Manifest
    digest: str
    vocabulary: Vocabulary
    engine: Engine
    popular: Popular
    neighbours: Neighbours | None
    metadata: tuple[bytes, ...] | None
    event_types: tuple[str, ...] = ()

    @property
    def reads_events(self) -> bool:
        """Whether the network wants to know more of a history's events than their items."""
        return set(self.manifest.inputs) != set(INPUTS)

    def rank(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer B questions in one run of the graph. Raises EngineUnavailable."""
        feed = stack_questions(
            questions,
            max_length=self.manifest.max_length,
            mask_index=self.vocabulary.mask_index,
            inputs=self.manifest.inputs,
        )
        return decode_answers(self.vocabulary, questions, *self.engine.rank(feed))

    def rank_popular(self, question: Question) -> Answer:
        """Answer from the popular list instead; the score is the item's count."""
        indexes, counts = self.popular.rank(exclude=question.exclude, candidates=question.candidates, k=question.k)
        return Answer(self.vocabulary.decode(indexes.tolist()), counts.astype(np.float64).tolist())

    def rank_neighbours(self, question: Question) -> Answer | None:
        """Answer from the sessions most like the history instead, where the bundle carries some."""
        if self.neighbours is None:
            return None
        indexes, scores = self.neighbours.rank(question)
        return Answer(self.vocabulary.decode(indexes.tolist()), scores.tolist())

    def describe_item(self, item_id: str) -> dict[str, Any] | None:
        """An item's metadata, empty where the bundle has none, or None for an item that the model does not know."""
        if item_id not in self.vocabulary:
            return None
        if self.metadata is None:
            return {}
        metadata: dict[str, Any] = orjson.loads(self.metadata[self.vocabulary.index_of(item_id) - 1])
        return metadata


def load_model(
    path: Path,
    *,
    provider: Literal["auto", "cuda", "cpu"],
    threads: int,
    max_batch: int,
    cuda_graphs: Literal["auto", "off"] = "auto",
) -> LiveModel:
    """Read, verify, load, examine and warm up a bundle. Raises StartFailed saying what is wrong with it.

    On a GPU the model is to be run by the thread that loads it: captured graphs belong to a thread.
    """
    try:
        bundle = read_bundle(path)
    except BundleError as error:
        raise StartFailed(f"the bundle cannot be used: {error}") from error
    if not is_signature(bundle.manifest.inputs):
        raise StartFailed(
            f"the bundle's network wants {', '.join(bundle.manifest.inputs)}; this version gives "
            f"{', '.join((*INPUTS, *ABSENT))}"
        )
    _check_metadata(bundle)
    model = LiveModel(
        manifest=bundle.manifest,
        digest=bundle.digest,
        vocabulary=bundle.vocabulary,
        engine=open_engine(
            bundle.network,
            item_count=bundle.manifest.item_count,
            provider=provider,
            threads=threads,
            inputs=bundle.manifest.inputs,
            buckets=()
            if cuda_graphs == "off"
            else list_buckets(
                max_batch=max_batch,
                max_length=bundle.manifest.max_length,
                item_count=bundle.manifest.item_count,
            ),
        ),
        popular=Popular.from_order(bundle.rank_popular(), bundle.counts),
        neighbours=None if bundle.sessions is None else Neighbours.from_sessions(bundle.sessions, bundle.counts),
        metadata=bundle.metadata,
        event_types=bundle.event_types,
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
    """Ask every golden example through the same steps as a request."""
    tolerance = CUDA_TOLERANCE if model.engine.provider == CUDA else CPU_TOLERANCE
    fault = examine(golden, model.vocabulary, model.rank, tolerance=tolerance)
    if fault is not None:
        raise StartFailed(f"the bundle's network does not answer as its trainer did: {fault}")


def _warm_up(model: LiveModel, max_batch: int) -> None:
    """Run the shapes that take longest once, so that no request pays for first allocations."""
    longest = np.resize(np.arange(1, len(model.vocabulary) + 1, dtype=np.int32), model.manifest.max_length)
    question = Question(history=longest, exclude=longest[:0], candidates=None, k=min(10, len(model.vocabulary)))
    for size in (max_batch, 1):
        model.rank([question] * size)
