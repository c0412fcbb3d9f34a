"""Which items are like others: the bundle's similar.onnx, which ranks by cosines and gives the items' rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.bundle import Bundle
from model.contract.golden import examine
from model.contract.query import Answer, Question, decode_answers, stack_questions
from model.contract.similar import MAX_LENGTH
from model.contract.vocabulary import Vocabulary
from service.errors import EngineUnavailable, ModelRefused
from service.inference.engine import Engine, open_engine
from service.inference.item_masks import apply_mask

_NONE = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class SimilarItems:
    """The items' rows, each of length 1. They lie in memory a second time, beside the network's own table."""

    engine: Engine
    """Always on the CPU: one product with a table, for which a GPU's memory is better left to the network."""
    vocabulary: Vocabulary

    def rank(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer questions whose histories name the items to be like; scores are mean cosines.

        Raises EngineUnavailable. Releases the GIL while it runs, as do all runs.
        """
        questions = [apply_mask(question, takes_masks=self.engine.takes_masks) for question in questions]
        return decode_answers(self.vocabulary, questions, *self.engine.rank(self._stack(questions)))

    def find_rows(self, indexes: NDArray[np.int32]) -> NDArray[np.float32]:
        """The rows (n, D) of items by index. Takes 0.14 ms for 100 of 1,682 items. Raises EngineUnavailable."""
        rows: NDArray[np.float32] = self.engine.read_rows(self._stack([Question(_NONE, _NONE, indexes, 1)]))[0]
        return rows

    def _stack(self, questions: Sequence[Question]) -> dict[str, NDArray[Any]]:
        return stack_questions(questions, max_length=MAX_LENGTH, mask_index=self.vocabulary.mask_index)


def load_similar(bundle: Bundle, *, threads: int, tolerance: float) -> SimilarItems | None:
    """Load and check the graph of a bundle that has one. Raises ModelRefused with the reason."""
    if bundle.similar is None:
        return None
    similar = SimilarItems(
        engine=open_engine(
            bundle.similar.network, item_count=bundle.manifest.item_count, provider="cpu", threads=threads
        ),
        vocabulary=bundle.vocabulary,
    )
    try:
        fault = examine(bundle.similar.golden, bundle.vocabulary, similar.rank, tolerance=tolerance)
        similar.find_rows(np.ones(1, dtype=np.int32))
    except EngineUnavailable as error:
        raise ModelRefused("engine", f"the bundle's graph of similar items does not run: {error}") from error
    if fault is not None:
        raise ModelRefused("golden", f"the bundle's graph of similar items answers otherwise than its trainer: {fault}")
    return similar
