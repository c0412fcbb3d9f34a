"""The environment variables that a system under test is started with.

Read in the peers' environments, too: the standard library is all that may be needed here.
"""

import os
from typing import NamedTuple

MODEL_VARIABLE = "BENCH_MODEL"
STORE_VARIABLE = "BENCH_STORE"
"""The model's folder, and the store's address."""
_WORKERS, _ROWS, _WAIT_S = "BENCH_WORKERS", "BENCH_ROWS", "BENCH_WAIT_S"


class Batching(NamedTuple):
    """How a framework gathers requests. One row: not at all."""

    rows: int
    """Of a batch, at most."""
    wait_s: float
    """LitServe: how long a batch waits to be filled. BentoML: how long an answer may take."""


class Orders(NamedTuple):
    """How many processes a framework runs the model in, and how each of them gathers."""

    workers: int
    batching: Batching

    @classmethod
    def from_environment(cls) -> "Orders":
        """What the variables say."""
        batching = Batching(int(os.environ[_ROWS]), float(os.environ[_WAIT_S]))
        return cls(int(os.environ[_WORKERS]), batching)

    def to_words(self) -> list[str]:
        """The beginning of a command that is to know them."""
        return [
            "/usr/bin/env",
            f"{_WORKERS}={self.workers}",
            f"{_ROWS}={self.batching.rows}",
            f"{_WAIT_S}={self.batching.wait_s}",
        ]
