"""The terms of the comparison and the log that all systems train on: written once, read by each of them.

Read in the peers' environments, too: numpy, torch and rich are all that may be needed here.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.data.histories import Histories
from training.data.split import Questions, Split


@dataclass(frozen=True, kw_only=True)
class Terms:
    """One network, one way to train it, one way to stop the clock. All in float32.

    What is None is as each library has it by default.
    """

    network: str = "bert4rec"
    max_length: int = 200
    width: int = 64
    layers: int = 2
    heads: int = 2
    dropout: float | None = 0.2
    mask_probability: float | None = 0.2
    last_item_share: float | None = 0.0
    """The share of samples that mask the last item alone, which RecTools does not have."""
    batch_size: int | None = 128
    learning_rate: float | None = 1e-3
    recipe: Mapping[str, Any] | None = None
    """A whole recipe, which ours trains by instead of what stands above."""
    seed: int = 1
    threads: int = 1
    warm_steps: int = 2
    """Steps before the clock starts, where there are no marks."""
    seconds: float = 60.0
    """A turn without marks ends with the step that ends after this much training."""
    marks: tuple[float, ...] = ()
    """CPU seconds, preparation among them, after which the metrics are measured; the last one ends the turn. Without
    any, a turn only counts tokens."""


@dataclass(frozen=True)
class Material:
    """U training histories, and the questions that systems are asked: of the validation, and of the test."""

    train: Histories
    questions: Questions
    test: Questions
    item_count: int


def cut_material(split: Split, item_count: int, *, users: int, seed: int, max_length: int | None = None) -> Material:
    """Choose so many validation users, and with `max_length` keep each user's newest N training items alone.

    Peers that leave older items out and those that cut them into windows would train different data otherwise.
    """
    train = split.train if max_length is None else split.train.cut_newest(max_length)
    rows = np.random.default_rng(seed).permutation(len(split.validation))[:users]
    return Material(train, split.validation.select(np.sort(rows)), split.test, item_count)


def write_task(folder: Path, terms: Terms, material: Material) -> None:
    """Lay down what `read_task` reads."""
    (folder / "terms.json").write_text(json.dumps(asdict(terms), indent=2), encoding="utf-8")
    arrays: dict[str, Any] = {
        "items": material.train.items,
        "train": np.stack([material.train.starts, material.train.ends]),
        "item_count": material.item_count,
    }
    for name, asked in (("questions", material.questions), ("test", material.test)):
        arrays[name] = np.stack([asked.histories.starts, asked.histories.ends])
        arrays[f"{name}_targets"] = asked.targets
    np.savez(folder / "material.npz", **arrays)


def read_task(folder: Path) -> tuple[Terms, Material]:
    """What `write_task` laid down."""
    document = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
    terms = Terms(**{**document, "marks": tuple(document["marks"])})
    with np.load(folder / "material.npz") as arrays:
        items = arrays["items"]
        asked = {
            name: Questions(Histories(items, *arrays[name]), arrays[f"{name}_targets"])
            for name in ("questions", "test")
        }
        return terms, Material(Histories(items, *arrays["train"]), **asked, item_count=int(arrays["item_count"]))


def count_prefix_tokens(lengths: np.ndarray) -> int:
    """Items in all the proper prefixes of histories (U): what one epoch of a trainer on prefixes passes through."""
    return int((lengths * (lengths - 1) // 2).sum())
