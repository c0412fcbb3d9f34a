"""What item embeddings begin with where a file says it, beside what is drawn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ITEM_VECTORS = "item_vectors.npy"
"""In a run: the rows."""


@dataclass(frozen=True)
class ItemStart:
    """What is added to the random embeddings of all items (V, up to D), and what config.json says of it."""

    rows: NDArray[np.float32]
    description: dict[str, Any]
