"""What business rules cost beside the ranking: microseconds of CPU for a list, by the size of its pool.

`python -m benchmarks.micro.business_rules` arranges lists of rows and metadata made up, and divides catalogues made up
by boosts; the best of several turns. With `--bundle`, it also measures what the rows take to come out of that bundle's
graph of similar items. What boosts cost the model's run: `python -m benchmarks.graph.boosted`.
"""

import argparse
import time
import timeit
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.harness.console import say
from model.contract.allowed import Allowed
from model.contract.query import Answer, Question
from model.contract.vocabulary import Vocabulary
from service.business_rules.arrangement import POOL, POOL_FACTOR, Arrangement
from service.business_rules.boosts import BoostedSet
from service.business_rules.caps import Cap, read_field
from service.inference.model import load_model
from service.ranking.divisions import divide

TURNS = 30
LISTS = 20
WIDTH = 64
GENRES = 18
"""Of which an item has one to three, as films do."""
BOOSTED = (0.1, 0.02, 0.3, 0.05)
"""Shares of the catalogue that four boosts match."""
NONE = np.empty(0, dtype=np.int32)


def arrange(vocabulary: Vocabulary, pool: Answer, k: int, **rules: Any) -> Answer:  # noqa: ANN401 - an Arrangement's own
    """A list of k items from one pool, as a request has it made."""
    if "cap" in rules:
        metadata = rules["cap"]
        rules["cap"] = Cap(2, lambda index: read_field(metadata[index - 1], "genres"))
    arrangement = Arrangement(Question(NONE, NONE, None, k), vocabulary, **rules)
    arrangement.take([pool] * len(arrangement.ask()))
    return arrangement.finish()


def measure(work: partial[Any]) -> float:
    """Microseconds of this process."""
    return 1e6 * min(timeit.Timer(work, timer=time.process_time).timeit(LISTS) / LISTS for _ in range(TURNS))


def draw_sets(draw: np.random.Generator, item_count: int) -> list[BoostedSet]:
    """The sets of four boosts, and the rest."""
    matching = [Allowed(draw.random(item_count + 2) < share) for share in BOOSTED]
    sets = divide(None, matching, item_count=item_count)
    return [BoostedSet(one, float(place)) for place, one in enumerate(sets)]


def divide_anew(item_count: int, matching: list[Allowed]) -> None:
    """As the first request of a scenario, and the first after a change of the catalogue."""
    for one in divide(None, matching, item_count=item_count):
        one.bits  # noqa: B018 - as a run makes them


def main(bundle: Path | None) -> None:
    """Measure and print."""
    draw = np.random.default_rng(1)
    for k in (10, 50):
        size = min(POOL_FACTOR * k, POOL)
        vocabulary = Vocabulary.from_items(f"item-{number:04}" for number in range(size))
        rows = draw.normal(size=(size, WIDTH))
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        pool = Answer(list(vocabulary.item_ids), np.sort(draw.normal(size=size))[::-1].tolist())
        genres = [draw.choice(GENRES, size=draw.integers(1, 4), replace=False).tolist() for _ in range(size)]
        metadata = [orjson.dumps({"title": "A title of some words", "year": 1995, "genres": some}) for some in genres]
        diverse: dict[str, Any] = {"diversity": 0.5, "find_rows": lambda _indexes, rows=rows: rows}
        for name, rules in {
            "max_per": {"cap": metadata},
            "diversity": diverse,
            "both": {"cap": metadata} | diverse,
            "boosts": {"boosted": draw_sets(draw, size)},
        }.items():
            taken_us = measure(partial(arrange, vocabulary, pool, k, **rules))
            say(f"{k} of {size}, {name}: {taken_us:.0f} us")
    for item_count in (1_682, 26_744, 1_000_000):
        matching = [Allowed(draw.random(item_count + 2) < share) for share in BOOSTED]
        taken_us = measure(partial(divide_anew, item_count, matching))
        say(f"{item_count} items divided by 4 boosts: {taken_us:.0f} us")
    if bundle is not None:
        model = load_model(bundle, provider="cpu", threads=1, max_batch=1)
        if model.similar is None:
            raise SystemExit(f"{bundle} has no graph of similar items: publish it with --similar")
        for count in (100, 500):
            indexes = draw.integers(1, len(model.vocabulary) + 1, size=count).astype(np.int32)
            taken_us = measure(partial(model.similar.find_rows, indexes))
            say(f"rows of {count} of {len(model.vocabulary)} items: {taken_us:.0f} us")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.business_rules", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--bundle", type=Path, help="a bundle that was published with --similar")
    main(parser.parse_args().bundle)
