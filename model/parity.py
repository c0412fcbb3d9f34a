"""Does the exported graph answer as PyTorch does? The questions asked here become the bundle's golden examples."""

from collections.abc import Sequence

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from model.contract.golden import Golden, difference
from model.contract.sequence import encode_feed
from model.contract.vocabulary import Vocabulary
from model.nets.bert4rec import Bert4Rec

TOLERANCE = 1e-4
"""How far an exported score may lie from PyTorch's."""


class ExportError(Exception):
    """The exported graph does not answer as the network does."""


def make_golden(
    network: Bert4Rec, vocabulary: Vocabulary, histories: Sequence[Sequence[str]], *, seed: int = 0
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
    network: Bert4Rec,
    vocabulary: Vocabulary,
    items: tuple[str, ...],
    exclude: tuple[str, ...],
    candidates: tuple[str, ...],
) -> Golden:
    k = 10
    feed = encode_feed(
        vocabulary,
        histories=[items],
        exclude=[exclude],
        candidates=[candidates],
        k=k,
        max_length=network.config.max_length,
    )
    network.eval()
    with torch.inference_mode():
        scores = network(torch.from_numpy(feed["item_ids"]), torch.from_numpy(feed["lengths"]))[0].numpy()
    allowed = np.ones(len(vocabulary), dtype=bool)
    if candidates:
        allowed[:] = False
        allowed[vocabulary.encode_known(candidates) - 1] = True
    allowed[vocabulary.encode_known(exclude) - 1] = False
    order = np.argsort(-scores, kind="stable")  # equal scores by index
    best = order[allowed[order]][:k]
    return Golden(
        items=items,
        exclude=exclude,
        candidates=candidates,
        k=k,
        expected_items=tuple(vocabulary.decode((best + 1).tolist())),
        expected_scores=tuple(scores[best].tolist()),
    )


def check_parity(graph: bytes, examples: Sequence[Golden], vocabulary: Vocabulary, *, max_length: int) -> None:
    """Ask the graph every example, alone and all in one batch. Raises ExportError at the first other answer."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])

    def ask(asked: Sequence[Golden]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        feed = encode_feed(
            vocabulary,
            histories=[example.items for example in asked],
            exclude=[example.exclude for example in asked],
            candidates=[example.candidates for example in asked],
            k=max(example.k for example in asked),
            max_length=max_length,
        )
        indexes, scores = session.run(["indexes", "scores"], feed)
        return indexes, scores

    together = ask(examples)
    for row, example in enumerate(examples):
        alone = ask([example])
        for how, indexes, scores in (
            ("alone", alone[0][0], alone[1][0]),
            ("batched", together[0][row], together[1][row]),
        ):
            kept = np.isfinite(scores)
            fault = difference(example, vocabulary.decode(indexes[kept]), scores[kept].tolist(), tolerance=TOLERANCE)
            if fault is not None:
                raise ExportError(f"the graph and PyTorch disagree on example {row} ({how}): {fault}")
