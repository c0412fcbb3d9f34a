"""Which items may be answered at all: a mask over one vocabulary's items, with what is known of it kept beside it."""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Allowed:
    """The items that may be answered. Immutable and compared by identity.

    Questions of one filter share one such object: what is known of it is found once, and a batch holds its mask once.
    It belongs to the vocabulary whose indexes it was made of.
    """

    def __init__(self, mask: ArrayLike) -> None:
        """Take a mask (V + 2) by item index, true where an item may be answered. It is copied.

        What it says of PAD and MASK does not matter. Raises ValueError for anything but a row of truth values.
        """
        known = np.array(mask)
        if known.ndim != 1 or known.dtype != np.bool_ or len(known) < 2:  # noqa: PLR2004 - PAD and MASK
            raise ValueError("a mask holds one truth value for PAD, for each item and for MASK")
        known[0] = known[-1] = False
        known.flags.writeable = False
        self.mask: NDArray[np.bool_] = known
        """(V + 2) by item index, read-only, false at PAD and MASK."""
        self.count = int(np.count_nonzero(known))
        """How many items may be answered."""

    @classmethod
    def only(cls, indexes: ArrayLike, *, item_count: int) -> "Allowed":
        """Allow some items of the catalogue by their indexes (any number, in any order)."""
        mask = np.zeros(item_count + 2, dtype=np.bool_)
        mask[np.asarray(indexes, dtype=np.intp)] = True
        return cls(mask)

    @classmethod
    def all_but(cls, indexes: ArrayLike, *, item_count: int) -> "Allowed":
        """Forbid some items of the catalogue by their indexes (any number, in any order)."""
        mask = np.ones(item_count + 2, dtype=np.bool_)
        mask[np.asarray(indexes, dtype=np.intp)] = False
        return cls(mask)

    @property
    def item_count(self) -> int:
        """V, the items of the vocabulary."""
        return len(self.mask) - 2

    @property
    def forbidden_count(self) -> int:
        """How many items may not be answered."""
        return self.item_count - self.count

    @cached_property
    def indexes(self) -> NDArray[np.int32]:
        """The items that may be answered, by index."""
        return np.flatnonzero(self.mask).astype(np.int32)

    @cached_property
    def forbidden(self) -> NDArray[np.int32]:
        """The items that may not be answered, by index."""
        return (np.flatnonzero(~self.mask[1:-1]) + 1).astype(np.int32)

    def __and__(self, other: "Allowed") -> "Allowed":
        """What both allow. Raises ValueError for masks of different vocabularies' sizes."""
        if self.item_count != other.item_count:
            raise ValueError("masks over catalogues of different sizes")
        return Allowed(self.mask & other.mask)

    def __repr__(self) -> str:
        """The two numbers that tell masks apart."""
        return f"Allowed({self.count} of {self.item_count})"


def allow_both(some: Allowed | None, others: Allowed | None) -> Allowed | None:
    """What both allow, where None allows everything. The same object back where there is nothing to combine."""
    if some is None or others is None:
        return others if some is None else some
    return some & others
