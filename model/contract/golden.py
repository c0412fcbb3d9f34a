"""Golden examples: questions with the trainer's own answers, asked again wherever a bundle is loaded."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from model.contract.manifest import BundleFormat


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One question in external ids, oldest item first, and PyTorch's answer, best first."""

    items: tuple[str, ...]
    exclude: tuple[str, ...]
    candidates: tuple[str, ...]
    k: int
    expected_items: tuple[str, ...]
    expected_scores: tuple[float, ...]


def golden_to_bytes(examples: Sequence[Golden]) -> bytes:
    """The text of golden.json."""
    return (json.dumps([asdict(example) for example in examples], indent=1) + "\n").encode()


def golden_from_bytes(content: bytes) -> tuple[Golden, ...]:
    """Read what `golden_to_bytes` wrote. Raises BundleFormat when it is anything else."""
    try:
        return tuple(_example(**entry) for entry in json.loads(content))
    except (ValueError, TypeError) as error:
        raise BundleFormat("golden.json is malformed") from error


def _example(
    *,
    items: list[str],
    exclude: list[str],
    candidates: list[str],
    k: int,
    expected_items: list[str],
    expected_scores: list[float],
) -> Golden:
    return Golden(
        items=tuple(items),
        exclude=tuple(exclude),
        candidates=tuple(candidates),
        k=int(k),
        expected_items=tuple(expected_items),
        expected_scores=tuple(map(float, expected_scores)),
    )


def difference(example: Golden, items: Sequence[str], scores: Sequence[float], *, tolerance: float) -> str | None:
    """Say how an answer differs from the expected one, or None when it does not.

    Items may change places only where their expected scores lie within `tolerance` of each other.
    """
    if len(items) != len(example.expected_items):
        return f"{len(items)} items instead of {len(example.expected_items)}"
    expected = np.array(example.expected_scores, dtype=np.float64)
    gap = np.abs(np.array(scores, dtype=np.float64) - expected)
    if not bool(np.all(gap <= tolerance)):
        return f"scores differ by up to {gap.max():.2e}"
    wanted = dict(zip(example.expected_items, example.expected_scores, strict=True))
    floor = min(example.expected_scores, default=0.0)
    for item, score in zip(items, scores, strict=True):
        if abs(wanted.get(item, floor) - score) > tolerance:
            return f"item {item!r} is out of place"
    return None
