"""The model in use: one immutable object. A request takes one reference and uses it throughout."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from model.contract.attributes import Attributes
from model.contract.bundle import Bundle, OpenBundle, read_bundle
from model.contract.event_inputs import ABSENT
from model.contract.golden import Golden, examine
from model.contract.manifest import BundleError, Manifest
from model.contract.query import INPUTS, Answer, Question, decode_answers, is_signature, stack_questions
from model.contract.vocabulary import Vocabulary
from service.errors import EngineUnavailable, ModelRefused
from service.inference.counted import Counted
from service.inference.engine import CUDA, CUDA_TOLERANCE, Engine, open_engine
from service.inference.item_masks import apply_mask
from service.inference.leave_one_out import leave_each_out
from service.inference.popular import Popular
from service.inference.refusal import refuse_bundle
from service.inference.reranking import pick_rerankings, rerank
from service.inference.shape_buckets import list_buckets
from service.inference.similar_items import SimilarItems, load_similar

CPU_TOLERANCE = 1e-4
"""Tolerance between a score on a CPU and the trainer's."""


class Explanation(NamedTuple):
    """How many items of the history were left out in turn, and of each answered item the reasons: ids and weights."""

    tried: int
    reasons: list[list[tuple[str, float]]]


@dataclass(frozen=True, eq=False)
class LiveModel:
    """A loaded and checked bundle."""

    manifest: Manifest
    digest: str
    vocabulary: Vocabulary
    engine: Engine
    popular: Popular
    neighbours: Counted | None
    metadata: tuple[bytes, ...] | None
    event_types: tuple[str, ...] = ()
    attributes: Attributes | None = None
    """What its items can be filtered by."""
    similar: SimilarItems | None = None
    """None where the bundle has no graph of similar items."""
    rules: Counted | None = None
    """Sequential rules, for comparison alone."""

    @property
    def reads_events(self) -> bool:
        """Whether the network takes event features besides the items of a history."""
        return set(self.manifest.inputs) != set(INPUTS)

    def rank(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer B questions in one run of the graph, but for those that leave few items: these have their own.

        Raises EngineUnavailable.
        """
        if any(question.allowed is not None for question in questions):
            questions = [apply_mask(question, takes_masks=self.engine.takes_masks) for question in questions]
        apart = pick_rerankings(questions, item_count=len(self.vocabulary)) if self.engine.skips_ranking else None
        if not apart:
            return decode_answers(self.vocabulary, questions, *self.engine.rank(self._stack(questions)))
        found = rerank([questions[number] for number in apart], self.score)
        answers = {
            number: Answer(self.vocabulary.decode(indexes), scores)
            for number, (indexes, scores) in zip(apart, found, strict=True)
        }
        rest = [question for number, question in enumerate(questions) if number not in answers]
        others = iter(decode_answers(self.vocabulary, rest, *self.engine.rank(self._stack(rest))) if rest else ())
        return [answers[number] if number in answers else next(others) for number in range(len(questions))]

    def score(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        """Scores (B, C) of the candidates of B questions, aligned to the right. Raises EngineUnavailable.

        Only where `engine.scores_candidates`.
        """
        return self.engine.score(self._stack(questions))

    def explain(self, question: Question, answer: Answer) -> Explanation:
        """What an answer to a question owes to each item of the history, in one run. As `score` otherwise."""
        ranked = self.vocabulary.encode(answer.item_ids)
        tried, reasons = leave_each_out(question, ranked, answer.scores, self.score)
        ids = self.vocabulary.item_ids
        return Explanation(tried, [[(ids[index - 1], weight) for index, weight in found] for found in reasons])

    def _stack(self, questions: Sequence[Question]) -> dict[str, NDArray[Any]]:
        return stack_questions(
            questions,
            max_length=self.manifest.max_length,
            mask_index=self.vocabulary.mask_index,
            inputs=self.manifest.inputs,
        )

    def rank_popular(self, question: Question) -> Answer:
        """Answer from the popular list; the score is the item's count."""
        indexes, counts = self.popular.rank(
            exclude=question.exclude, candidates=question.candidates, k=question.k, allowed=question.allowed
        )
        return Answer(self.vocabulary.decode(indexes.tolist()), counts.astype(np.float64).tolist())

    def rank_neighbours(self, question: Question) -> Answer:
        """Answer from the sessions most similar to the history. Only where there are `neighbours`."""
        assert self.neighbours is not None  # noqa: S101 - who asks has looked
        return self.rank_counted(self.neighbours, question)

    def find_counted(self, name: str) -> Counted | None:
        """The ranker of that name that counts, if the bundle has it."""
        return next((one for one in (self.neighbours, self.rules) if one is not None and one.name == name), None)

    def rank_counted(self, counted: Counted, question: Question) -> Answer:
        """Answer by `neighbours` or by `rules`."""
        indexes, scores = counted.rank(question)
        return Answer(self.vocabulary.decode(indexes.tolist()), scores.tolist())

    def release(self) -> None:
        """Free the engines, on the thread that runs the network. The model answers no more by them."""
        self.engine.release()
        if self.similar is not None:
            self.similar.engine.release()

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
    similar: bool = True,
) -> LiveModel:
    """Read, verify, load, check and warm up a bundle. Raises ModelRefused with the reason.

    On a GPU the thread that loads the model must also run it, because CUDA graphs belong to a thread. Without `similar`
    the bundle's graph of similar items takes no memory.
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
        neighbours=None if bundle.sessions is None else Counted.from_sessions(bundle.sessions, bundle.counts),
        metadata=bundle.metadata,
        event_types=bundle.event_types,
        attributes=bundle.attributes,
        similar=load_similar(bundle, threads=threads, tolerance=CPU_TOLERANCE) if similar else None,
        rules=None if bundle.rules is None else Counted.from_rules(bundle.rules, bundle.counts),
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
