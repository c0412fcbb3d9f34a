"""Item ids and the indexes under which a network knows them.

Index 0 is PAD, items are 1 to V in the order of their ids, V + 1 is MASK. Since indexes follow ids, whatever breaks
ties by the lower index breaks them by item id, inside an ONNX graph too.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from model.contract.id_rule import is_valid_id

PAD = 0
UNKNOWN = -1
"""What a lookup gives for an id outside the vocabulary. It never enters a graph."""


class VocabularyError(ValueError):
    """The list of item ids breaks a rule of this module."""


class Vocabulary:
    """An immutable two-way map between V item ids and the indexes 1 to V."""

    def __init__(self, item_ids: Sequence[str]) -> None:
        """Take V distinct valid ids in ascending order. Raises VocabularyError otherwise."""
        if not item_ids:
            raise VocabularyError("a vocabulary needs at least one item")
        for position, item_id in enumerate(item_ids):
            if not is_valid_id(item_id):
                raise VocabularyError(f"item {position + 1} breaks the id rule: {item_id!r:.80}")
            if position and item_ids[position - 1] >= item_id:
                raise VocabularyError(f"item {position + 1} is not in ascending order")
        self._ids = tuple(item_ids)
        self._index = {item_id: index for index, item_id in enumerate(self._ids, start=1)}

    @classmethod
    def from_items(cls, item_ids: Iterable[str]) -> "Vocabulary":
        """Make the vocabulary of all ids that occur, in any order and number."""
        return cls(sorted(set(item_ids)))

    @classmethod
    def from_bytes(cls, content: bytes) -> "Vocabulary":
        """Read what `to_bytes` wrote. Raises VocabularyError when it is anything else."""
        try:
            return cls(content.decode("ascii").removesuffix("\n").split("\n"))
        except UnicodeDecodeError as error:
            raise VocabularyError("the vocabulary is not ASCII") from error

    def to_bytes(self) -> bytes:
        """One id a line, line i holding index i."""
        return ("\n".join(self._ids) + "\n").encode("ascii")

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._index

    @property
    def mask_index(self) -> int:
        """The index of the [mask] token: V + 1."""
        return len(self._ids) + 1

    @property
    def table_size(self) -> int:
        """Rows of an embedding table that covers PAD, the items and MASK: V + 2."""
        return len(self._ids) + 2

    @property
    def item_ids(self) -> tuple[str, ...]:
        """All ids, in the order of their indexes."""
        return self._ids

    def index_of(self, item_id: str) -> int:
        """The index of an item, or UNKNOWN."""
        return self._index.get(item_id, UNKNOWN)

    def encode(self, item_ids: Iterable[str]) -> NDArray[np.int32]:
        """The indexes of ids, in order, UNKNOWN where there is none."""
        return np.array(list(map(self._index.get, item_ids, repeat(UNKNOWN))), dtype=np.int32)

    def encode_known(self, item_ids: Iterable[str]) -> NDArray[np.int32]:
        """The indexes of those ids that have one, in order."""
        indexes = list(map(self._index.get, item_ids))
        if None in indexes:
            indexes = [index for index in indexes if index is not None]
        return np.array(indexes, dtype=np.int32)

    def decode(self, indexes: Iterable[int]) -> list[str]:
        """The ids of item indexes. Raises VocabularyError for PAD, MASK and anything outside."""
        ids, last = self._ids, len(self._ids)
        return [ids[index - 1] if 0 < index <= last else _refuse(index) for index in indexes]


def _refuse(index: int) -> NoReturn:
    raise VocabularyError(f"index {index} is no item")
