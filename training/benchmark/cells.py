"""A cell: one model by one recipe and seed on one log under one protocol, as a JSON document that is kept.

```
OUT/DATA/PROTOCOL/MODEL-s1.json      the cell: metrics, cost, recipe, environment
                  verdict.json       the best transformer against the best baseline
OUT/benchmark.md, .csv, .png         all cells of OUT
RUNS/DATA/MODEL-s1-DIGEST            the run behind it, and its ranks by user under each protocol
```
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.atomic_files import write_whole
from model.contract.npy import ARRAY_FAULTS
from model.nets.network import UserNetwork
from model.nets.registry import NETWORKS
from training.errors import InputError
from training.evaluation.metrics import measure_ranks
from training.evaluation.results import SHOWN, number_evaluation
from training.json_files import write_json
from training.old_names import OLD_KEYS
from training.recipe import DataRecipe, Recipe, make_recipe
from training.recipe_models import BaselineRecipe, CaserRecipe, TransformerRecipe
from training.runs.documents import METRIC, parse

Document = dict[str, Any]
CELL = {
    "model": str,
    "kind": str,
    "data": {"name": str, "fingerprint": str, "users": int, "items": int, "events": int},
    "protocol": str,
    "seed": int,
    "questions": int,
    "metrics": dict.fromkeys(SHOWN, METRIC),
    "epochs": int,
    "training_seconds": float,
    "parameters": int,
    "ms_per_request": float,
    "recipe": {},
    "environment": {},
    "measured_at": str,
}


COUNTER = "counter"
"""The kind of a baseline: the word of stored cells and tables."""
HYBRID = "hybrid"
"""The kind of a transformer whose score has counts in it: sequential rules, or what is popular of late."""
TRANSFORMERS = ("transformer", HYBRID)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Where one cell and the run behind it lie."""

    model: str
    """The recipe's name."""
    recipe: Recipe
    data: str
    """What the log is called."""
    protocol: str
    out: Path
    runs: Path

    @property
    def seed(self) -> int:
        return self.recipe.train.seed

    @property
    def path(self) -> Path:
        """The cell's document."""
        return self.out / self.data / self.protocol / f"{self.model}-s{self.seed}.json"

    @property
    def run(self) -> Path:
        """The run's folder, another one for another recipe; a key that is new or renamed since then changes nothing."""
        choices = json.dumps(_list_choices(self.recipe), sort_keys=True)
        digest = hashlib.sha256(choices.encode()).hexdigest()[:8]
        return self.runs / self.data / f"{self.model}-s{self.seed}-{digest}"

    @property
    def ranks(self) -> Path:
        """The ranks of the test questions under the cell's protocol."""
        return self.run / f"ranks-{self.protocol}.npz"

    @classmethod
    def of(cls, document: Document, *, out: Path, runs: Path) -> "Cell":
        """The cell that a document is of."""
        return cls(
            model=document["model"],
            recipe=_read_recipe(document),
            data=document["data"]["name"],
            protocol=document["protocol"],
            out=out,
            runs=runs,
        )

    def is_finished(self) -> bool:
        """Whether the document is there, and of this recipe. Raises InputError for a damaged one.

        What counts is measured again for every new evaluation, since that takes seconds.
        """
        if not self.path.is_file():
            return False
        document = read_cell(self.path)
        stale = document["kind"] == COUNTER and read_evaluation(document) < number_evaluation(self.protocol)
        return _read_recipe(document) == self.recipe and not stale

    def write(self, document: Document, greater: NDArray[np.int64], ties: NDArray[np.int64]) -> None:
        """Keep the ranks (B), as `Ranks` has them, then the document, which makes the cell finished."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, greater=greater, ties=ties)
        write_whole(self.ranks, buffer.getvalue())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, document)

    def read_values(self) -> Mapping[str, Any] | None:
        """Every metric of every question, or None where the ranks are not there any more."""
        try:
            with np.load(self.ranks, allow_pickle=False) as file:
                return measure_ranks(file["greater"], file["ties"])
        except (*ARRAY_FAULTS, OSError, KeyError):
            return None


def name_kind(recipe: Recipe) -> str:
    """Transformer, one with counts, another network of sequences, a network of users (never served), or a baseline."""
    if isinstance(recipe.model, BaselineRecipe):
        return COUNTER
    if isinstance(recipe.model, TransformerRecipe):
        return TRANSFORMERS[recipe.rules_per_item is not None or recipe.recent_days is not None]
    return "user" if issubclass(NETWORKS[recipe.model.name], UserNetwork) else "sequence"


def _read_recipe(document: Document) -> Recipe:
    """The recipe of a cell, which may be older than today's key names. Raises RecipeError."""
    return make_recipe(document["recipe"], announce=False)


def _list_choices(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """`Recipe.list_choices` under the first name of each key, so that the folders of older runs are found again."""
    first = {section: {new: old for old, new in keys.items()} for section, keys in OLD_KEYS.items()}
    if not isinstance(recipe.model, CaserRecipe):
        del first["model"]["window"]  # the baselines' key of this name was always called so
    return {
        section: {first[section].get(key, key): value for key, value in keys.items()}
        for section, keys in recipe.list_choices().items()
    }


def read_cell(path: Path) -> Document:
    """One cell's document. Raises InputError for a damaged one."""
    try:
        document = dict(parse(path.read_text(), CELL))
        return document | {"kind": name_kind(_read_recipe(document))}  # kinds may have been others then
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a valid benchmark cell: {error}; delete it to measure it again") from error


def read_evaluation(document: Document) -> int:
    """Which evaluation a cell is of (training/evaluation/results.py, EVALUATION)."""
    return int(document.get("evaluation", 1))


def read_cells(out: Path) -> list[Document]:
    """All finished cells under a folder, in the order of their paths."""
    return [read_cell(path) for path in sorted(out.glob("*/*/*-s*.json"))]


def require_log(out: Path, data: str, fingerprint: str, recipe: DataRecipe) -> None:
    """Refuse to put cells beside those of another log, or of other events of it. Raises InputError."""
    for cell in read_cells(out):
        if cell["data"]["name"] == data and (
            cell["data"]["fingerprint"] != fingerprint or _read_recipe(cell).data != recipe
        ):
            raise InputError(
                f"{out / data} holds cells of another log, or of other events of this log: choose another --name"
            )


def group_cells(cells: Sequence[Document]) -> dict[tuple[str, str], list[Document]]:
    """Cells by the name of their data and their protocol: those that compare."""
    groups: dict[tuple[str, str], list[Document]] = {}
    for cell in cells:
        groups.setdefault((cell["data"]["name"], cell["protocol"]), []).append(cell)
    return groups
