"""PPMI initialisation of item embeddings: a factorisation of item co-occurrence (train.item_init = ppmi).

Items that occur together get similar vectors (item2vec is a factorisation of just this: Levy & Goldberg 2014).
A second of counting stands in for the first epochs, in which a network on a sparse log learns little else.
"""

import time

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from model.contract.vocabulary import PAD
from model.nets.network import Network
from training.data.histories import Histories

REACH = 3
"""Places that two items may be apart to count as near."""
LENGTH = 0.6
"""Mean length of a row, about what training makes of it on Amazon Beauty."""
_SMOOTHING = 0.75
"""Power of the frequencies that chance is measured by, so that rare items do not look related to everything."""
_SPARE, _ROUNDS = 16, 4
_NOTHING = 1e-9


def add_item_vectors(network: Network, vectors: NDArray[np.float32]) -> None:
    """Add vectors (V, up to D) to the random embeddings of the items that are read, and ranked where all is tied."""
    with torch.no_grad():
        table = network.items.weight
        table[PAD + 1 : -1, : vectors.shape[1]] += torch.from_numpy(vectors).to(table.device)


def factorise_items(train: Histories, item_count: int, width: int, seed: int) -> NDArray[np.float32]:
    """Vectors (V, min(D, V)): the first left singular vectors of how much more often than by chance two items are near.

    An item that is near no other has a vector of zeros.
    """
    return factorise_related(count_related(train, item_count), width, seed)


def factorise_related(related: sparse.csr_array, width: int, seed: int) -> NDArray[np.float32]:
    """The same of what `count_related` counted (V, V)."""
    left = _find_left(related, min(width, related.shape[0]), np.random.default_rng(seed))
    left[related.sum(axis=1) == 0] = 0  # exactly, whatever rounding left there
    length = float(np.linalg.norm(left, axis=1).mean())
    return (left * (LENGTH / length if length else 0)).astype(np.float32)


def foretell_seconds(related: sparse.csr_array, width: int) -> float:
    """How long `factorise_related` is going to take here, by one of its products."""
    basis = np.ones((related.shape[1], min(width, related.shape[0]) + _SPARE))
    begun = time.monotonic()
    related @ basis
    return (2 * _ROUNDS + 3) * (time.monotonic() - begun)


def count_related(train: Histories, item_count: int) -> sparse.csr_array:
    """Positive pointwise mutual information (V, V) of items at most REACH places apart, a pair s apart counting 1/s."""
    rows, items = train.flatten()
    counts = sparse.csr_array((item_count, item_count))
    for step in range(1, REACH + 1):
        same = rows[step:] == rows[:-step]
        first, then = items[:-step][same] - 1, items[step:][same] - 1
        other = first != then
        weights = np.full(int(other.sum()), 1 / step)
        counts = counts + sparse.csr_array((weights, (first[other], then[other])), shape=counts.shape)
    both = (counts + counts.T).tocoo()
    totals = both.sum(axis=1)
    chances = totals**_SMOOTHING / max(float((totals**_SMOOTHING).sum()), np.finfo(np.float64).tiny)
    information = np.log(both.data / (totals[both.row] * chances[both.col]))
    kept = information > 0
    return sparse.csr_array((information[kept], (both.row[kept], both.col[kept])), shape=both.shape)


def _find_left(matrix: sparse.csr_array, count: int, draw: np.random.Generator) -> NDArray[np.float64]:
    """The first left singular vectors (V, K) by subspace iteration (Halko, Martinsson & Tropp 2011, algorithm 4.4)."""
    size = min(matrix.shape[0], count + _SPARE)
    basis = matrix @ draw.standard_normal((matrix.shape[1], size))
    for _ in range(_ROUNDS):
        basis = matrix @ (matrix.T @ np.linalg.qr(basis).Q)
    basis = np.linalg.qr(basis).Q
    turned, values, _ = np.linalg.svd((matrix.T @ basis).T, full_matrices=False)
    known = values > _NOTHING * max(float(values[0]), 1.0)  # what is left of the basis is whatever was drawn
    left: NDArray[np.float64] = (basis @ turned * known)[:, :count]
    return left
