"""The terms of the comparison and the log that all systems train on: written once, read by each of them.

Read in the peers' environments, too: numpy, torch and rich are all that may be needed here.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from training.data.histories import Histories
from training.data.split import Questions, Split


@dataclass(frozen=True, kw_only=True)
class Terms:
    """One network, one way to train it, one way to stop the clock. All in float32 with the softmax over all items."""

    max_length: int = 200
    width: int = 64
    layers: int = 2
    heads: int = 2
    dropout: float = 0.2
    mask_probability: float = 0.2
    batch_size: int = 128
    learning_rate: float = 1e-3
    seed: int = 1
    threads: int = 1
    warm_steps: int = 2
    """Steps before the clock starts."""
    seconds: float = 60.0
    """A turn ends with the step that ends after this much training."""
    target: float | None = None
    """A validation NDCG@10 that ends a turn, or None for a turn that only counts tokens."""
    check_seconds: float = 60.0
    """Seconds of training between two validations, where there is a target."""


@dataclass(frozen=True)
class Material:
    """U training histories of at most N items, and the questions of the validation."""

    train: Histories
    questions: Questions
    item_count: int


def cut_material(split: Split, item_count: int, *, max_length: int, users: int, seed: int) -> Material:
    """Keep each user's newest N training items, which all systems then train on, and so many validation users.

    Peers that leave older items out and those that cut them into windows would train different data otherwise.
    """
    train = split.train
    starts = np.maximum(train.starts, train.ends - max_length)
    rows = np.random.default_rng(seed).permutation(len(split.validation))[:users]
    return Material(Histories(train.items, starts, train.ends), split.validation.select(np.sort(rows)), item_count)


def write_task(folder: Path, terms: Terms, material: Material) -> None:
    """Lay down what `read_task` reads."""
    (folder / "terms.json").write_text(json.dumps(asdict(terms), indent=2), encoding="utf-8")
    asked = material.questions.histories
    np.savez(
        folder / "material.npz",
        items=material.train.items,
        train=np.stack([material.train.starts, material.train.ends]),
        asked=np.stack([asked.starts, asked.ends]),
        targets=material.questions.targets,
        item_count=material.item_count,
    )


def read_task(folder: Path) -> tuple[Terms, Material]:
    """What `write_task` laid down."""
    terms = Terms(**json.loads((folder / "terms.json").read_text(encoding="utf-8")))
    with np.load(folder / "material.npz") as arrays:
        items = arrays["items"]
        questions = Questions(Histories(items, *arrays["asked"]), arrays["targets"])
        return terms, Material(Histories(items, *arrays["train"]), questions, int(arrays["item_count"]))


def count_prefix_tokens(lengths: np.ndarray) -> int:
    """Items in all the proper prefixes of histories (U): what one epoch of a trainer on prefixes passes through."""
    return int((lengths * (lengths - 1) // 2).sum())
