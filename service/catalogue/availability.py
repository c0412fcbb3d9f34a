"""Which items of one model may be answered, kept up change by change, so that no request pays for it."""

from collections.abc import Iterable

import numpy as np

from model.contract.allowed import Allowed
from model.contract.vocabulary import Vocabulary


class Availability:
    """A mask over one vocabulary. It does not hold the vocabulary, so that a model that goes takes its mask along."""

    def __init__(self, vocabulary: Vocabulary, hidden: Iterable[str]) -> None:
        """Take the items that may not be answered. Those that the vocabulary lacks do not matter."""
        self._mask = np.ones(vocabulary.table_size, dtype=np.bool_)
        self._mask[vocabulary.encode_known(hidden)] = False
        self._hidden = vocabulary.table_size - int(np.count_nonzero(self._mask))
        self._allowed: Allowed | None = None

    @property
    def allowed(self) -> Allowed | None:
        """What may be answered, the same object until something changes; None if all may."""
        if self._allowed is None and self._hidden:
            self._allowed = Allowed(self._mask)
        return self._allowed

    def set(self, index: int, *, available: bool) -> None:
        """Let an item of the vocabulary be answered from now on, or not."""
        if self._mask[index] != available:
            self._mask[index] = available
            self._hidden += -1 if available else 1
            self._allowed = None
