"""What the trainer's tests share: small logs with a known law, and quick recipes."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from model.contract.vocabulary import Vocabulary
from training.data.histories import Histories
from training.data.interactions import Log
from training.recipe import Recipe, make_recipe


@pytest.fixture(scope="session", autouse=True)
def single_thread():
    """Tiny matrices are quickest on one thread, and tests may share their cores."""
    torch.set_num_threads(1)


@pytest.fixture
def make_histories() -> Callable[[Iterable[Iterable[int]]], Histories]:
    """A maker of histories from lists of indexes."""

    def make(rows: Iterable[Iterable[int]]) -> Histories:
        arrays = [np.array(list(row), dtype=np.int32) for row in rows]
        ends = np.cumsum([len(array) for array in arrays]).astype(np.int64)
        starts = np.append(0, ends)[: len(ends)]
        return Histories(np.concatenate([*arrays, np.zeros(0, np.int32)]), starts, ends)

    return make


@pytest.fixture
def make_log(make_histories) -> Callable[..., Log]:
    """A maker of logs from lists of indexes; items are named i01, i02, ..."""

    def make(rows: Iterable[Iterable[int]], *, item_count: int | None = None) -> Log:
        rows = [list(row) for row in rows]
        histories = make_histories(rows)
        item_count = item_count or max(map(max, rows))
        width = max(2, len(str(item_count)))
        return Log(
            user_ids=[f"u{row:03}" for row in range(len(rows))],
            vocabulary=Vocabulary([f"i{index:0{width}}" for index in range(1, item_count + 1)]),
            offsets=np.concatenate([[0], histories.ends]).astype(np.int64),
            items=histories.items,
            timestamps_ms=None,
        )

    return make


@pytest.fixture(scope="session")
def cycles() -> list[list[int]]:
    """Walks round a ring of 12 items: whoever sees the last item knows the next."""
    return [[(start + step) % 12 + 1 for step in range(6 + start % 3)] for start in range(12) for _ in range(2)]


@pytest.fixture
def small_recipe() -> Callable[..., Recipe]:
    """A maker of recipes for networks that train in a second; further keyword arguments are [train] keys."""

    def make(*, width: int = 16, dropout: float = 0.1, network: str = "bert4rec", **train: object) -> Recipe:
        settings = {"device": "cpu", "epochs": 3, "batch_size": 8, "warmup_steps": 2, "learning_rate": 3e-3}
        model = {"name": network, "max_length": 6, "width": width, "layers": 1, "heads": 2, "dropout": dropout}
        return make_recipe({"model": model, "train": {**settings, **train}})

    return make


@pytest.fixture(scope="session")
def write_cycles(cycles) -> Callable[[Path], Path]:
    """A function that writes the ring's log as a CSV file into a folder."""

    def write(folder: Path) -> Path:
        rows = [
            f"u{user:02},i{item:02},{1_700_000_000 + 60 * step}"
            for user, walk in enumerate(cycles)
            for step, item in enumerate(walk)
        ]
        path = folder / "cycles.csv"
        path.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
        return path

    return write


@pytest.fixture
def cycle_csv(tmp_path, write_cycles) -> Path:
    """The ring's log as a CSV file."""
    return write_cycles(tmp_path)
