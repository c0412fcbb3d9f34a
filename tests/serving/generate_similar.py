"""Writes what the tiny bundle has with --similar: `python -m tests.serving.generate_similar`."""

from pathlib import Path

import numpy as np

from model.contract.bundle import read_bundle
from model.export.graph import OPSET
from model.export.similar import make_similar_files

ROOT = Path(__file__).parent
WIDTH = 4


def draw_rows(item_count: int) -> np.ndarray:
    """Rows (V + 2, D), the same each time. The last two items are one, and the row of the first is 0."""
    rows = np.random.default_rng(20261123).normal(size=(item_count + 2, WIDTH)).astype(np.float32)
    rows[item_count] = rows[item_count - 1]
    rows[1] = 0
    return rows


if __name__ == "__main__":
    vocabulary = read_bundle(ROOT / "bundle").vocabulary
    draw = np.random.default_rng(5)
    histories = [[str(item) for item in draw.choice(vocabulary.item_ids, size=length)] for length in (0, 1, 3, 10)]
    files = make_similar_files(
        draw_rows(len(vocabulary)), vocabulary, histories, scan="plain", opset=OPSET, kept=1 + 3 * len(histories)
    )
    for name, content in files.items():
        (ROOT / "similar" / name).write_bytes(content)
