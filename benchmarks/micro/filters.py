"""What filters cost: reading one, finding what it allows among V items, and the memory and loading of the columns.

`python -m benchmarks.micro.filters --items 1000000` makes up a catalogue of two columns of numbers and three of
strings, and prints the CPU time of each; the least of several turns.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.console import say
from model.contract.attributes import Attributes
from model.contract.columns import Column, Numbers, Postings
from service.filters.filter import Filter
from service.filters.parser import parse_filter

T = TypeVar("T")
FILTERS = {
    "a genre": {"field": "genres", "in": ["genre-03"]},
    "three brands": {"field": "brand", "in": ["brand-00003", "brand-00500", "brand-07000"]},
    "a price range": {"field": "price", "gte": 10, "lt": 500},
    "a year": {"field": "year", "in": [1999]},
    "genre, price and not a tag": {
        "all": [
            {"field": "genres", "in": ["genre-03", "genre-04"]},
            {"field": "price", "gte": 10},
            {"not": {"field": "tags", "in": ["tag-007"]}},
        ]
    },
    "the dearest: 16 times all tags": {"any": [{"field": "tags", "exists": True}] * 16},
}


def make_attributes(item_count: int) -> Attributes:
    """A made-up catalogue."""
    draw = np.random.default_rng(20261123)

    def post(name: str, values: int, of_each: int, digits: int) -> Postings:
        places = draw.integers(values, size=(item_count, of_each), dtype=np.int32)
        pairs = np.unique(places.astype(np.int64) * (item_count + 1) + np.arange(1, item_count + 1)[:, None])
        starts = np.searchsorted(pairs, np.arange(values + 1) * (item_count + 1))
        kept = np.flatnonzero(np.diff(starts))  # a value that no item has is none
        texts = tuple(f"{name}-{place:0{digits}}" for place in kept.tolist())
        items: NDArray[np.int32] = (pairs % (item_count + 1)).astype(np.int32)
        return Postings(texts, np.append(starts[kept], len(items)), items)

    columns: dict[str, Column] = {
        "brand": post("brand", 10_000, 1, 5),
        "genres": post("genre", 20, 3, 2),
        "price": Numbers(draw.lognormal(3, 2, item_count).round(2)),
        "tags": post("tag", 1000, 5, 3),
        "year": Numbers(draw.integers(1950, 2027, item_count).astype(np.float64)),
    }
    return Attributes(item_count, columns)


def measure(work: Callable[[], T], turns: int = 7) -> tuple[float, T]:
    """The least seconds of CPU that it takes, and what it gives."""
    least_s = float("inf")
    for _ in range(turns):
        began_s = time.process_time()
        result = work()
        least_s = min(least_s, time.process_time() - began_s)
    return least_s, result


def main(item_count: int) -> None:
    """Measure and print."""
    content = make_attributes(item_count).to_bytes()
    loading_s, attributes = measure(lambda: Attributes.from_bytes(content, item_count), turns=1)
    say(f"{item_count:,} items: {len(content) / 2**20:.1f} MiB of columns, read in {loading_s:.3f} s")
    for name, document in FILTERS.items():
        reading_s, wanted = measure(partial(parse_filter, document), turns=200)
        wanted.check(attributes)
        _report(name, wanted, attributes, reading_s)


def _report(name: str, wanted: Filter, attributes: Attributes, reading_s: float) -> None:
    wanted.allow(attributes)  # what is made once, is now
    least_s, allowed = measure(lambda: wanted.allow(attributes))
    expected_s = wanted.estimate_work(attributes) / 1e9
    say(
        f"{name}: {allowed.count:,} allowed; read in {1e6 * reading_s:.0f} us, found in {1e3 * least_s:.3f} ms "
        f"(expected at most {1e3 * expected_s:.3f})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.filters", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--items", type=int, default=1_000_000, help="items of the catalogue (default: %(default)s)")
    main(parser.parse_args().items)
