"""The model in use: one immutable object. A request takes one reference and uses it throughout."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from model.contract.bundle import Bundle, OpenBundle, read_bundle
from model.contract.event_inputs import ABSENT
from model.contract.golden import Golden, examine
from model.contract.manifest import BundleError, Manifest
from model.contract.query import INPUTS, Answer, Question, decode_answers, is_signature, stack_questions
from model.contract.vocabulary import Vocabulary
from service.errors import EngineUnavailable, ModelRefused
from service.inference.engine import CUDA, CUDA_TOLERANCE, Engine, open_engine
from service.inference.neighbours import Neighbours
from service.inference.popular import Popular
from service.inference.refusal import refuse_bundle
from service.inference.shape_buckets import list_buckets

CPU_TOLERANCE = 1e-4
"""Tolerance between a score on a CPU and the trainer's."""


@dataclass(frozen=True, eq=False)
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
        """Whether the network takes event features besides the items of a history."""
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
        """Answer from the popular list; the score is the item's count."""
        indexes, counts = self.popular.rank(exclude=question.exclude, candidates=question.candidates, k=question.k)
        return Answer(self.vocabulary.decode(indexes.tolist()), counts.astype(np.float64).tolist())

    def rank_neighbours(self, question: Question) -> Answer | None:
        """Answer from the sessions most similar to the history; None if the bundle has no sessions."""
        if self.neighbours is None:
            return None
        indexes, scores = self.neighbours.rank(question)
        return Answer(self.vocabulary.decode(indexes.tolist()), scores.tolist())

    def describe_item(self, item_id: str) -> dict[str, Any] | None:
        """An item's metadata, empty if the bundle has none; None for an unknown item."""
        if item_id not in self.vocabulary:
            return None
        metadata: dict[str, Any] = orjson.loads(self.find_metadata(item_id))
        return metadata

    def find_metadata(self, item_id: str) -> bytes:
        """A known item's metadata as a JSON object, `{}` if the bundle has none."""
        return b"{}" if self.metadata is None else self.metadata[self.vocabulary.index_of(item_id) - 1]


def load_model(
    source: Path | OpenBundle,
    *,
    provider: Literal["auto", "cuda", "cpu"],
    threads: int,
    max_batch: int,
    cuda_graphs: Literal["auto", "off"] = "auto",
) -> LiveModel:
    """Read, verify, load, check and warm up a bundle. Raises ModelRefused with the reason.

    On a GPU the thread that loads the model must also run it, because CUDA graphs belong to a thread.
    """
    try:
        bundle = source.read() if isinstance(source, OpenBundle) else read_bundle(source)
    except BundleError as error:
        raise refuse_bundle(error) from error
    if not is_signature(bundle.manifest.inputs):
        raise ModelRefused(
            "format",
            f"the bundle's network wants {', '.join(bundle.manifest.inputs)}; this version gives "
            f"{', '.join((*INPUTS, *ABSENT))}",
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
        _check_golden(model, bundle.golden)
        _warm_up(model, max_batch)
    except EngineUnavailable as error:
        raise ModelRefused("engine", f"the bundle's network does not run: {error}") from error
    return model


def _check_metadata(bundle: Bundle) -> None:
    for number, line in enumerate(bundle.metadata or (), start=1):
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise ModelRefused(
                "format", f"the bundle cannot be used: line {number} of its metadata is not a JSON object"
            )


def _check_golden(model: LiveModel, golden: Sequence[Golden]) -> None:
    """Check every golden example through the same steps as a request."""
    tolerance = CUDA_TOLERANCE if model.engine.provider == CUDA else CPU_TOLERANCE
    fault = examine(golden, model.vocabulary, model.rank, tolerance=tolerance)
    if fault is not None:
        raise ModelRefused("golden", f"the bundle's network does not answer as its trainer did: {fault}")


def _warm_up(model: LiveModel, max_batch: int) -> None:
    """Run the largest shapes once, so that no request pays for first allocations."""
    longest = np.resize(np.arange(1, len(model.vocabulary) + 1, dtype=np.int32), model.manifest.max_length)
    question = Question(history=longest, exclude=longest[:0], candidates=None, k=min(10, len(model.vocabulary)))
    for size in (max_batch, 1):
        model.rank([question] * size)
