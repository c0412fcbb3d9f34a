"""Item embeddings that begin with vectors from a file (`fit --item-vectors`, train.item_init = vectors).

What is known of an item's text or picture says which items are alike, of those too that were seldom met. The vectors
are centred, projected to their first principal axes, as many as the network is wide, and half whitened: a component
counts by the root of its singular value, so that one that dominates all vectors does not drown the others, and noise
does not become as loud as they are (docs/decisions/0040). The rows are as long as those of the start by counts
(training/fit/ppmi.py).
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.contract.npy import decode_arrays
from model.contract.vocabulary import UNKNOWN, Vocabulary
from training.data.item_start import ITEM_VECTORS, ItemStart
from training.errors import DataError, RecipeError
from training.fit.ppmi import LENGTH
from training.logs.item_vectors import ItemVectors, describe_overlap, read_item_vectors
from training.recipe import Recipe
from training.recipe_models import NetworkRecipe
from training.runs.run import Run

VECTORS = "vectors"
_NOTHING = 1e-9


def learn_item_start(recipe: Recipe, path: Path | None, vocabulary: Vocabulary) -> ItemStart | None:
    """The start that a recipe asks for, from a file; None where it asks for another one. Raises TrainingError."""
    asked = recipe.train.item_init == VECTORS
    if asked != (path is not None):
        raise RecipeError(
            "train.item_init = vectors needs --item-vectors FILE"
            if asked
            else f"--item-vectors goes with train.item_init = vectors, not {recipe.train.item_init}"
        )
    if path is None:
        return None
    if not isinstance(recipe.model, NetworkRecipe):
        raise RecipeError(f"--item-vectors begins a network: {recipe.model.name} counts a log")
    return place_vectors(read_item_vectors(path, recipe.data.ids), vocabulary, recipe.model.width)


def read_item_start(run: Run) -> NDArray[np.float32]:
    """The rows (V, up to D) that a run began with. Raises RunError."""
    with run.reading(ITEM_VECTORS):
        [rows] = decode_arrays((run.path / ITEM_VECTORS).read_bytes(), 1)
        if rows.dtype != np.float32 or rows.ndim != 2 or len(rows) != len(run.vocabulary):
            raise ValueError("not a row for each item")
    return rows


def place_vectors(given: ItemVectors, vocabulary: Vocabulary, width: int) -> ItemStart:
    """Rows for the items of a vocabulary. An item without a vector has zeros: the mean of the others.

    Items of the file that the vocabulary does not have count for nothing. Raises DataError where it has none of them.
    """
    indexes = vocabulary.encode(given.ids)
    known = indexes != UNKNOWN
    if not known.any():
        overlap = describe_overlap(given, list(vocabulary.item_ids))
        raise DataError(f"{given.file} has a vector of no item of the log: {overlap}")
    projected = project(given.vectors[known], width)
    rows = np.zeros((len(vocabulary), projected.shape[1]), dtype=np.float32)
    rows[indexes[known] - 1] = projected
    description = {
        "file": given.file,
        "sha256": given.sha256,
        "items": int(known.sum()),
        "size": given.vectors.shape[1],
    }
    return ItemStart(rows, description)


def project(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Vectors (N, E) as (N, min(D, E)): U S^.5 of the centred ones' U S V', with rows of LENGTH in the mean.

    A component that the vectors do not have, since they lie in fewer dimensions, is zero.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    values, axes = np.linalg.eigh(centred.T @ centred)  # ascending
    values, axes = values[::-1][:width], axes[:, ::-1][:, :width]
    known = values > _NOTHING * max(float(values[0]), np.finfo(np.float64).tiny)
    found = np.zeros((len(vectors), len(values)))
    found[:, known] = centred @ axes[:, known] / values[known] ** 0.25  # values are the squares of S
    length = float(np.linalg.norm(found, axis=1).mean())
    return (found * (LENGTH / length if length else 0)).astype(np.float32)
