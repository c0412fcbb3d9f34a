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

from model.contract.arrays import ARRAY_FAULTS
from model.contract.files import write_whole
from model.nets.catalogue import NETWORKS
from model.nets.network import UserNetwork
from training.errors import InputError
from training.files import write_json
from training.metrics import measure_ranks
from training.model_recipe import CounterRecipe, TransformerRecipe
from training.recipe import DataRecipe, Recipe, make_recipe
from training.results import SHOWN
from training.shapes import METRIC, parse

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
        """The run's."""
        return self.recipe.train.seed

    @property
    def path(self) -> Path:
        """The cell's document."""
        return self.out / self.data / self.protocol / f"{self.model}-s{self.seed}.json"

    @property
    def run(self) -> Path:
        """The run's folder, another one for another recipe; a key that is new since then changes nothing."""
        choices = json.dumps(self.recipe.list_choices(), sort_keys=True)
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
            recipe=make_recipe(document["recipe"]),
            data=document["data"]["name"],
            protocol=document["protocol"],
            out=out,
            runs=runs,
        )

    def is_finished(self) -> bool:
        """Whether the document is there, and of this recipe. Raises InputError for a damaged one."""
        return self.path.is_file() and make_recipe(read_cell(self.path)["recipe"]) == self.recipe

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
    """Transformer, another network of sequences, a network of users (which cannot be served), or a counter."""
    if isinstance(recipe.model, CounterRecipe):
        return "counter"
    if isinstance(recipe.model, TransformerRecipe):
        return "transformer"
    return "user" if issubclass(NETWORKS[recipe.model.network][0], UserNetwork) else "sequence"


def read_cell(path: Path) -> Document:
    """One cell's document. Raises InputError for a damaged one."""
    try:
        return dict(parse(path.read_text(), CELL))
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no cell of a benchmark: {error}; delete it to measure it anew") from error


def read_cells(out: Path) -> list[Document]:
    """All finished cells under a folder, in the order of their paths."""
    return [read_cell(path) for path in sorted(out.glob("*/*/*-s*.json"))]


def require_log(out: Path, data: str, fingerprint: str, recipe: DataRecipe) -> None:
    """Refuse to put cells beside those of another log, or of other events of it. Raises InputError."""
    for cell in read_cells(out):
        if cell["data"]["name"] == data and (
            cell["data"]["fingerprint"] != fingerprint or make_recipe(cell["recipe"]).data != recipe
        ):
            raise InputError(
                f"{out / data} holds cells of another log or of other events of it: give this one another --name"
            )


def group_cells(cells: Sequence[Document]) -> dict[tuple[str, str], list[Document]]:
    """Cells by the name of their data and their protocol: those that compare."""
    groups: dict[tuple[str, str], list[Document]] = {}
    for cell in cells:
        groups.setdefault((cell["data"]["name"], cell["protocol"]), []).append(cell)
    return groups
