"""Check that the exported graph answers as PyTorch does. The queries become the bundle's golden examples."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from model.contract.allowed import Allowed
from model.contract.event_inputs import ABSENT, TIMES
from model.contract.golden import Golden, compare, examine
from model.contract.query import (
    CANDIDATE_SCORES,
    OUTPUTS,
    Answer,
    Question,
    decode_answers,
    encode_question,
    skip_ranking,
    stack_questions,
)
from model.contract.sequence import encode_histories
from model.contract.vocabulary import Vocabulary
from model.nets.network import SequenceNetwork

K = 10
_NEWEST_MS = 1_700_000_000_000
TOLERANCE = 1e-4
"""How far an exported score may lie from PyTorch's."""


class ExportError(Exception):
    """The exported graph does not answer as the network does."""


def make_golden(
    network: SequenceNetwork, vocabulary: Vocabulary, histories: Sequence[Sequence[str]], *, seed: int = 0
) -> list[Golden]:
    """Ask PyTorch a question of each kind for each history: plain, seen excluded, candidates, nothing known at all."""

    def score(items: Sequence[str]) -> NDArray[np.float32]:
        item_ids, lengths = encode_histories(
            [vocabulary.encode_known(items)], max_length=network.config.max_length, mask_index=vocabulary.mask_index
        )
        network.eval()
        with torch.inference_mode():
            scores: NDArray[np.float32] = network(torch.from_numpy(item_ids), torch.from_numpy(lengths))[0].numpy()
        return scores

    return ask_each(score, vocabulary, histories, seed=seed)


def ask_each(
    score: Callable[[Sequence[str]], NDArray[np.floating]],
    vocabulary: Vocabulary,
    histories: Sequence[Sequence[str]],
    *,
    seed: int = 0,
) -> list[Golden]:
    """The same questions to whatever scores all items (V) after a history of ids."""
    draw = np.random.default_rng(seed)
    catalogue = np.array(vocabulary.item_ids)
    examples = [sort_answer(vocabulary, score(()), items=())]
    for history in histories:
        some = tuple(map(str, draw.choice(catalogue, size=min(20, len(catalogue)), replace=False)))
        items, scores = tuple(history), score(history)
        examples.append(sort_answer(vocabulary, scores, items=items))
        examples.append(sort_answer(vocabulary, scores, items=items, exclude=items))
        examples.append(sort_answer(vocabulary, scores, items=items, exclude=items, candidates=some))
    return examples


def sort_answer(
    vocabulary: Vocabulary,
    scores: NDArray[np.floating],
    *,
    items: tuple[str, ...],
    exclude: tuple[str, ...] = (),
    candidates: tuple[str, ...] = (),
) -> Golden:
    """The golden example whose answer is the K best by `scores` (V) of what may be answered, equal ones by index."""
    question = encode_question(vocabulary, history=items, exclude=exclude, candidates=candidates or None, k=K)
    allowed = np.full(len(vocabulary), question.candidates is None)
    if question.candidates is not None:
        allowed[question.candidates - 1] = True
    allowed[question.exclude - 1] = False
    order = np.argsort(-scores, kind="stable")  # equal scores by index
    best = order[allowed[order]][: question.k]
    return Golden(
        items=items,
        exclude=exclude,
        candidates=candidates,
        k=K,
        expected_items=tuple(vocabulary.decode((best + 1).tolist())),
        expected_scores=tuple(scores[best].tolist()),
    )


def check_parity(
    graph: bytes, examples: Sequence[Golden], vocabulary: Vocabulary, *, max_length: int, inputs: Sequence[str] = ()
) -> None:
    """Ask the graph every example, alone and all in one batch. Raises ExportError at the first other answer.

    And without every other expected item, which a mask forbids; and about the expected items as candidates that are
    scored, not ranked. Nothing is known of the examples' events: a
    graph that reads them, by the optional `inputs`, answers without.
    """
    session = _open(graph)

    def stack(questions: Sequence[Question]) -> dict[str, NDArray[Any]]:
        return stack_questions(questions, max_length=max_length, mask_index=vocabulary.mask_index, inputs=inputs)

    def answer(questions: Sequence[Question]) -> list[Answer]:
        return decode_answers(vocabulary, questions, *session.run(OUTPUTS, stack(questions)))

    fault = examine(examples, vocabulary, answer, tolerance=TOLERANCE)
    if fault is not None:
        raise ExportError(f"the graph and PyTorch disagree: {fault}")
    _check_masks(examples, vocabulary, answer)
    for batch in [*([example] for example in examples), examples]:
        named = [
            example.encode(vocabulary)._replace(candidates=vocabulary.encode_known(example.expected_items))
            for example in batch
        ]
        (found,) = session.run([CANDIDATE_SCORES], skip_ranking(stack(named)))
        for example, scores in zip(batch, found, strict=True):
            wanted = np.array(example.expected_scores, dtype=np.float32)
            apart = np.abs(scores[len(scores) - len(wanted) :, 0] - wanted).max(initial=0)
            if not apart <= TOLERANCE:
                raise ExportError(f"the graph and PyTorch disagree about candidates: a score is {apart:.2g} apart")


def _check_masks(
    examples: Sequence[Golden], vocabulary: Vocabulary, answer: Callable[[Sequence[Question]], list[Answer]]
) -> None:
    forbidden = [vocabulary.encode_known(example.expected_items[::2]) for example in examples]
    asked = [
        example.encode(vocabulary)._replace(allowed=Allowed.all_but(items, item_count=len(vocabulary)))
        for example, items in zip(examples, forbidden, strict=True)
    ]
    for example, items, got in zip(examples, forbidden, answer(asked), strict=True):
        wanted = example.expected_items[1::2], example.expected_scores[1::2]
        n = len(wanted[0])
        fault = compare((got.item_ids[:n], got.scores[:n]), wanted, k=n, tolerance=TOLERANCE)
        if fault is None and not set(vocabulary.decode(items.tolist())).isdisjoint(got.item_ids):
            fault = "a forbidden item is answered"
        if fault is not None:
            raise ExportError(f"the graph and PyTorch disagree about masks: {fault}")


def check_events(
    graph: bytes,
    network: SequenceNetwork,
    vocabulary: Vocabulary,
    histories: Sequence[Sequence[int]],
    *,
    type_count: int,
    seed: int = 0,
) -> None:
    """Ask the graph of a network that reads events about histories with events drawn at random, some of them absent.

    Half of the questions say when they are asked.

    Raises ExportError when a score is not PyTorch's.
    """
    draw = np.random.default_rng(seed)
    V = len(vocabulary)
    questions = [
        Question(
            history=np.array(history, dtype=np.int32),
            exclude=np.empty(0, np.int32),
            candidates=None,
            k=V,
            events=_draw_events(draw, history, type_count),
            asked_ms=_NEWEST_MS * int(draw.integers(2)),
        )
        for history in histories
    ]
    feed = stack_questions(
        questions, max_length=network.config.max_length, mask_index=V + 1, inputs=network.event_inputs
    )
    names = ("item_ids", "lengths", *network.event_inputs)
    with torch.inference_mode():
        wanted = network.eval()(*(torch.from_numpy(feed[name]) for name in names)).numpy()
    indexes, scores = _open(graph).run(OUTPUTS, feed)
    apart = np.abs(np.take_along_axis(wanted, indexes - 1, axis=1) - scores).max(initial=0)
    if not apart <= TOLERANCE:
        raise ExportError(f"the graph and PyTorch disagree about histories with events: a score is {apart:.2g} apart")


def _draw_events(draw: np.random.Generator, history: Sequence[int], type_count: int) -> dict[str, NDArray[Any]]:
    n = len(history)
    drawn = {
        "types": draw.integers(1, type_count + 1, size=n) if type_count else np.zeros(n, dtype=np.int64),
        "values": draw.integers(1, 6, size=n),
        TIMES: _NEWEST_MS - np.cumsum(10 ** draw.integers(1, 9, size=n))[::-1],
    }
    absent = draw.random(n) < 0.1
    return {
        name: np.where(absent, ABSENT[name], features).astype(ABSENT[name].dtype) for name, features in drawn.items()
    }


def _open(graph: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # inputs with defaults are meant to be no constants
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
