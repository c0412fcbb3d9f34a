"""The popular list against a plain sort."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.contract.allowed import Allowed
from service.inference.popular import Popular

COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=12)
INDEXES = st.lists(st.integers(1, 12), max_size=15)


@given(
    counts=COUNTS,
    exclude=INDEXES,
    candidates=st.none() | INDEXES,
    k=st.integers(1, 15),
    forbidden=st.none() | INDEXES,
)
def test_popular_is_a_sort(counts, exclude, candidates, k, forbidden):
    """By falling count, then by index; without what is excluded or forbidden; of the candidates only; never too few."""
    size = len(counts)
    exclude = [index for index in exclude if index <= size]
    candidates = None if candidates is None else [index for index in candidates if index <= size]
    forbidden = None if forbidden is None else [index for index in forbidden if index <= size]
    allowed = None if forbidden is None else Allowed.all_but(forbidden, item_count=size)
    order = np.argsort(-np.array(counts), kind="stable").astype(np.int32) + 1
    popular = Popular.from_order(order, np.array(counts, dtype=np.int64))
    indexes, scores = popular.rank(
        exclude=np.array(exclude, dtype=np.int32),
        candidates=None if candidates is None else np.array(candidates, dtype=np.int32),
        k=k,
        allowed=allowed,
    )
    pool = set(range(1, size + 1) if candidates is None else candidates) - set(exclude) - set(forbidden or ())
    expected = sorted(pool, key=lambda index: (-counts[index - 1], index))[:k]
    assert indexes.tolist() == expected
    assert scores.tolist() == [counts[index - 1] for index in expected]
