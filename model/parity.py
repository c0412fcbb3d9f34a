"""Does the exported graph answer as PyTorch does? The questions asked here become the bundle's golden examples."""

from collections.abc import Sequence

import numpy as np
import onnxruntime
import torch

from model.contract.golden import Golden, examine
from model.contract.question import OUTPUTS, Answer, Question, decode_answer, encode_question, stack_questions
from model.contract.sequence import encode_histories
from model.contract.vocabulary import Vocabulary
from model.nets.network import SequenceNetwork

K = 10
TOLERANCE = 1e-4
"""How far an exported score may lie from PyTorch's."""


class ExportError(Exception):
    """The exported graph does not answer as the network does."""


def make_golden(
    network: SequenceNetwork, vocabulary: Vocabulary, histories: Sequence[Sequence[str]], *, seed: int = 0
) -> list[Golden]:
    """Ask PyTorch a question of each kind for each history: plain, seen excluded, candidates, nothing known at all."""
    draw = np.random.default_rng(seed)
    catalogue = np.array(vocabulary.item_ids)
    examples = [_ask_network(network, vocabulary, (), (), ())]
    for history in histories:
        some = tuple(map(str, draw.choice(catalogue, size=min(20, len(catalogue)), replace=False)))
        examples.append(_ask_network(network, vocabulary, tuple(history), (), ()))
        examples.append(_ask_network(network, vocabulary, tuple(history), tuple(history), ()))
        examples.append(_ask_network(network, vocabulary, tuple(history), tuple(history), some))
    return examples


def _ask_network(
    network: SequenceNetwork,
    vocabulary: Vocabulary,
    items: tuple[str, ...],
    exclude: tuple[str, ...],
    candidates: tuple[str, ...],
) -> Golden:
    question = encode_question(vocabulary, history=items, exclude=exclude, candidates=candidates or None, k=K)
    item_ids, lengths = encode_histories(
        [question.history], max_length=network.config.max_length, mask_index=vocabulary.mask_index
    )
    network.eval()
    with torch.inference_mode():
        scores = network(torch.from_numpy(item_ids), torch.from_numpy(lengths))[0].numpy()
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


def check_parity(graph: bytes, examples: Sequence[Golden], vocabulary: Vocabulary, *, max_length: int) -> None:
    """Ask the graph every example, alone and all in one batch. Raises ExportError at the first other answer."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def answer(questions: Sequence[Question]) -> list[Answer]:
        feed = stack_questions(questions, max_length=max_length, mask_index=vocabulary.mask_index)
        rows = zip(questions, *session.run(OUTPUTS, feed), strict=True)
        return [decode_answer(vocabulary, indexes, scores, k=question.k) for question, indexes, scores in rows]

    fault = examine(examples, vocabulary, answer, tolerance=TOLERANCE)
    if fault is not None:
        raise ExportError(f"the graph and PyTorch disagree: {fault}")
