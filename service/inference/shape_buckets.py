"""Shape buckets: on a GPU a batch is padded to the smallest of a few shapes that holds it, and its answer cut back.

Padding changes no answer. The network ignores the padding of tokens, exclusions and candidates. Extra rows repeat the
first row and are dropped. And the first k of more than k results are the k best.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.contract.event_inputs import ABSENT
from model.contract.query import ALLOWED, INPUTS, Question, stack_questions
from model.contract.vocabulary import PAD

Feed = Mapping[str, NDArray[Any]]

EXCLUDED = 1024
"""Maximum exclusions of a row: the default history length, and some more."""
CANDIDATES = 128
RESULTS = 100
_SHORT = 64
"""Tokens of the short shapes; the long ones have the whole window."""
_FACTOR = 4
"""Factor from one number of rows to the next."""
_DRAWN = 16
"""Maximum exclusions and candidates of a row of random queries."""


class Bucket(NamedTuple):
    """One shape: sizes of all inputs and, as `results`, of the outputs."""

    rows: int
    length: int
    excluded: int
    candidates: int
    results: int


def list_buckets(*, max_batch: int, max_length: int, item_count: int) -> tuple[Bucket, ...]:
    """Shapes for batches of up to `max_batch` histories, smallest first."""
    rows = [1]
    while rows[-1] < max_batch:
        rows.append(min(_FACTOR * rows[-1], max_batch))
    lengths = sorted({min(_SHORT, max_length), max_length})
    return tuple(
        Bucket(count, length, EXCLUDED, CANDIDATES, min(RESULTS, item_count)) for count in rows for length in lengths
    )


def blank_feed(bucket: Bucket, inputs: Collection[str]) -> dict[str, NDArray[Any]]:
    """Inputs in a bucket's shape that hold only padding."""
    tokens = (bucket.rows, bucket.length)
    feed: dict[str, NDArray[Any]] = {
        "item_ids": np.full(tokens, PAD, dtype=np.int32),
        "lengths": np.zeros(bucket.rows, dtype=np.int32),
        "exclude": np.full((bucket.rows, bucket.excluded), PAD, dtype=np.int32),
        "candidates": np.full((bucket.rows, bucket.candidates), PAD, dtype=np.int32),
        "k": np.array([bucket.results], dtype=np.int64),
    }
    return feed | {name: np.full(tokens, ABSENT[name]) for name in ABSENT if name in inputs}


def find_bucket(buckets: Sequence[Bucket], feed: Feed) -> Bucket | None:
    """The first bucket that holds a batch; None if no bucket is large enough, and for a batch with masks."""
    if ALLOWED in feed:
        return None
    (k,) = feed["k"].tolist()
    rows, length = feed["item_ids"].shape
    wanted = Bucket(rows, length, feed["exclude"].shape[1], feed["candidates"].shape[1], k)
    for bucket in buckets:
        if all(asked <= held for asked, held in zip(wanted, bucket, strict=True)):
            return bucket
    return None


def pad_feed(feed: Feed, blank: Feed) -> dict[str, NDArray[Any]]:
    """A batch padded to the shape of a bucket, given the bucket's blank inputs, which are not changed.

    Raises ValueError for inputs of other names, types or numbers of dimensions.
    """
    if feed.keys() != blank.keys():
        raise ValueError("other inputs than the graph's")
    padded = {}
    for name, empty in blank.items():
        given = feed[name]
        if given.dtype != empty.dtype or given.ndim != empty.ndim:
            raise ValueError(f"{name} is of another type than the graph's")
        padded[name] = empty if name == "k" else _pad(given, empty)
    return padded


def _pad(given: NDArray[Any], empty: NDArray[Any]) -> NDArray[Any]:
    """Align rows to the right, as histories are, and fill the remaining rows with copies of the first."""
    if given.shape == empty.shape:
        return given
    full = empty.copy()
    rows = len(given)
    if given.ndim == 1:
        full[:rows] = given
    else:
        full[:rows, full.shape[1] - given.shape[1] :] = given
    full[rows:] = full[0]
    return full


def draw_feed(bucket: Bucket, *, item_count: int, inputs: Collection[str] = INPUTS, seed: int) -> Feed:
    """Random queries that fill a bucket's rows, tokens and results; some have exclusions and candidates."""
    draw = np.random.default_rng(seed)

    def items(size: int) -> NDArray[np.int32]:
        return draw.integers(1, item_count + 1, size=size, dtype=np.int32)

    questions = [
        Question(
            history=items(bucket.length - 1 if row == 0 else int(draw.integers(bucket.length))),
            exclude=items(int(draw.integers(min(_DRAWN, bucket.excluded) + 1))),
            candidates=items(min(_DRAWN, bucket.candidates)) if row % 3 == 2 else None,
            k=bucket.results,
        )
        for row in range(bucket.rows)
    ]
    return stack_questions(questions, max_length=bucket.length, mask_index=item_count + 1, inputs=inputs)
