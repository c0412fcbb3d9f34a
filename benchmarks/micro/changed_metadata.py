"""What filters pay for metadata that the live catalogue changed: reading it once, and each filter after a change.

`python -m benchmarks.micro.changed_metadata --items 1000000 --changed 1000 100000 1000000` gives so many items of a
made-up catalogue another price, then reads them as a worker does, and prints CPU times. `step` is what the loop is held
for in one go while a worker reads in the background.
"""

import argparse
import asyncio
import time
import tracemalloc

import numpy as np

from benchmarks.harness.console import say
from model.contract.allowed import Allowed
from model.contract.vocabulary import Vocabulary
from service.catalogue import changed_metadata
from service.catalogue.changed_metadata import ChangedMetadata
from service.catalogue.live import CatalogueView
from service.catalogue.overlay import Overlay
from service.filters.changed_columns import ChangedItems, Seen
from service.filters.parser import parse_filter
from service.store.catalogue import LoggedChange

KINDS = {"title": False, "genres": False, "brand": False, "price": True, "year": True}
FILTERS = {
    "a genre": {"field": "genres", "in": ["genre-03"]},
    "a price range": {"field": "price", "gte": 10, "lt": 500},
    "genre, price and not a brand": {
        "all": [
            {"field": "genres", "in": ["genre-03", "genre-04"]},
            {"field": "price", "gte": 10},
            {"not": {"field": "brand", "in": ["brand-7"]}},
        ]
    },
}


def describe(number: int) -> bytes:
    """A record of an item: its metadata as a shop would send them, some 110 bytes."""
    return (
        b'1{"title":"Title of item %d","genres":["genre-%02d","genre-%02d"],"brand":"brand-%d","price":%d.5,"year":%d}'
        % (number, number % 20, number % 7, number % 1000, number % 900, 1950 + number % 77)
    )


async def read(changed: ChangedMetadata, overlay: Overlay) -> float:
    """The seconds of CPU that it takes to know all of an overlay."""
    view = CatalogueView(overlay.version, False, overlay)
    began_s = time.process_time()
    while (await changed.follow(view, within_s=600)).behind:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0)
    return time.process_time() - began_s


def measure(vocabulary: Vocabulary, count: int) -> None:
    """Measure and print."""
    overlay = Overlay(b"1-0")
    overlay.add({item_id: describe(number) for number, item_id in enumerate(vocabulary.item_ids[:count])})
    changed = ChangedMetadata(vocabulary, KINDS, lambda _item_id: b"{}")
    reading_s = asyncio.run(read(changed, overlay))
    say(
        f"{count:,} of {len(vocabulary):,} items changed: read in {reading_s:.3f} s, {1e6 * reading_s / count:.1f} us "
        f"each, {1e3 * reading_s / count * min(count, changed_metadata.STEP):.2f} ms a step"
    )
    all_rows = changed.columns.end
    overlay.apply(LoggedChange(b"2-0", vocabulary.item_ids[0], describe(7)))
    asyncio.run(read(changed, overlay))
    before = Allowed(np.ones(vocabulary.table_size, dtype=np.bool_))
    for name, document in FILTERS.items():
        wanted = parse_filter(document)

        def cut(seen: Seen, fields: frozenset[str] = wanted.fields) -> ChangedItems:
            return changed.columns.since(seen, fields)

        took_ms = []
        for seen in (all_rows, Seen()):
            began_s = time.process_time()
            for _ in range(5):
                allowed = wanted.allow_anew(before, cut(seen))
            took_ms.append(1e3 * (time.process_time() - began_s) / 5)
        expected_ms = wanted.estimate_work(cut(Seen())) / 1e6
        say(
            f"  {name}: {took_ms[1]:.3f} ms for all of them (expected at most {expected_ms:.3f}), {took_ms[0]:.3f} ms "
            f"after one more change; {allowed.count:,} allowed"
        )


def weigh(vocabulary: Vocabulary, count: int) -> None:
    """Print the memory of the columns of so many changed items."""
    overlay = Overlay(b"1-0")
    overlay.add({item_id: describe(number) for number, item_id in enumerate(vocabulary.item_ids[:count])})
    changed = ChangedMetadata(vocabulary, KINDS, lambda _item_id: b"{}")
    tracemalloc.start()
    asyncio.run(read(changed, overlay))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    say(f"  {grown / count:.0f} bytes for each of {count:,} changed items, half of them the titles, which differ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.changed_metadata", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--items", type=int, default=1_000_000, help="items of the catalogue (default: %(default)s)")
    parser.add_argument("--changed", type=int, nargs="*", default=[1_000, 100_000, 1_000_000], help="how many change")
    options = parser.parse_args()
    made = Vocabulary([f"item-{number:07d}" for number in range(options.items)])
    for changes in options.changed:
        measure(made, min(changes, options.items))
    weigh(made, min(100_000, options.items))
