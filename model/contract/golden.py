"""Golden examples: queries with the trainer's own answers, checked wherever a bundle is loaded."""

import json
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from model.contract.manifest import BundleFormat, is_count, is_number
from model.contract.query import Answer, Question, encode_question
from model.contract.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One question in external ids, oldest item first, and PyTorch's answer, best first."""

    items: tuple[str, ...]
    exclude: tuple[str, ...]
    candidates: tuple[str, ...]
    k: int
    expected_items: tuple[str, ...]
    expected_scores: tuple[float, ...]

    def encode(self, vocabulary: Vocabulary) -> Question:
        """The question as a request would ask it."""
        return encode_question(
            vocabulary, history=self.items, exclude=self.exclude, candidates=self.candidates or None, k=self.k
        )


def golden_to_bytes(examples: Sequence[Golden]) -> bytes:
    """The text of golden.json."""
    return (json.dumps([asdict(example) for example in examples], indent=1) + "\n").encode()


def golden_from_bytes(content: bytes) -> tuple[Golden, ...]:
    """Read what `golden_to_bytes` wrote. Raises BundleFormat when it is anything else."""
    try:
        entries: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BundleFormat("golden.json is not JSON") from error
    if not isinstance(entries, list):
        raise BundleFormat("golden.json is not a list")
    if not entries:
        raise BundleFormat("golden.json holds no example: nothing could be proven")
    return tuple(_read_example(position, entry) for position, entry in enumerate(entries))


def _read_example(position: int, entry: object) -> Golden:
    if not isinstance(entry, dict) or entry.keys() != _RULES.keys():
        raise BundleFormat(f"golden.json: example {position} is not an object of {', '.join(_RULES)}")
    for name, (holds, wanted) in _RULES.items():
        if not holds(entry[name]):
            raise BundleFormat(f"golden.json: example {position}: {name!r} must be {wanted}")
    if len(entry["expected_items"]) != len(entry["expected_scores"]):
        raise BundleFormat(f"golden.json: example {position} has not one expected score for each expected item")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return Golden(**values)


def _is_list_of(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(holds, value))


_IDS = (_is_list_of(lambda value: isinstance(value, str)), "a list of strings")
_RULES = {
    **dict.fromkeys(("items", "exclude", "candidates", "expected_items"), _IDS),
    "k": (is_count, "a positive integer"),
    "expected_scores": (_is_list_of(is_number), "a list of finite numbers"),
}


def examine(
    examples: Sequence[Golden],
    vocabulary: Vocabulary,
    answer: Callable[[Sequence[Question]], Sequence[Answer]],
    *,
    tolerance: float,
) -> str | None:
    """Ask every example, alone and all in one batch. Says how the first other answer differs, or None."""
    asked = [(example, example.encode(vocabulary)) for example in examples]
    for batch in [*([one] for one in asked), asked]:
        answers = answer([question for _, question in batch])
        for (example, _), got in zip(batch, answers, strict=True):
            fault = difference(example, got.item_ids, got.scores, tolerance=tolerance)
            if fault is not None:
                how = "alone" if len(batch) == 1 else "in a batch"
                return f"golden example {examples.index(example)}, asked {how}: {fault}"
    return None


def difference(example: Golden, items: Sequence[str], scores: Sequence[float], *, tolerance: float) -> str | None:
    """Say how an answer differs from the expected one, or None when it does not."""
    return compare((items, scores), (example.expected_items, example.expected_scores), k=example.k, tolerance=tolerance)


def compare(
    got: tuple[Sequence[Hashable], Sequence[float]],
    expected: tuple[Sequence[Hashable], Sequence[float]],
    *,
    k: int,
    tolerance: float,
) -> str | None:
    """Say how a list of items and scores differs from the expected one but for rounding, or None when it does not.

    Scores may differ by `tolerance`, and items may change places only if their scores are that close. At the end of a
    list that has all `k` items, an item may be replaced by one from beyond the list with such a score.
    """
    (items, scores), (expected_items, expected_scores) = got, expected
    if len(items) != len(expected_items):
        return f"{len(items)} items instead of {len(expected_items)}"
    gap = np.abs(np.array(scores, dtype=np.float64) - np.array(expected_scores, dtype=np.float64))
    if not bool(np.all(gap <= tolerance)):  # nor NaN
        return f"scores differ by up to {gap.max():.2e}"
    if len(set(items)) != len(items):
        return "an item stands in two places"
    wanted = dict(zip(expected_items, expected_scores, strict=True))
    beyond = min(expected_scores, default=math.inf) if len(items) == k else math.inf
    for item, score in zip(items, scores, strict=True):
        if abs(wanted.get(item, beyond) - score) > tolerance:
            return f"item {item!r} is out of place"
    return None
