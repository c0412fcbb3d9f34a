"""What a search by title costs: our scan beside SQLite's trigram index (FTS5, in memory), over made-up titles.

`python -m benchmarks.micro.item_search --items 200000` prints, for each, the time and the memory of a build, the
longest time that it held the GIL, and the time of a search for what many, some and no titles have. SQLite is asked for
the most popular matches only: it knows no beginnings of titles or words, and nothing under three letters.
"""

import argparse
import random
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from benchmarks.harness.console import say
from service.search.folding import fold
from service.search.pace import Pace
from service.search.title_index import TitleIndex
from service.system.memory import MIB
from service.system.pauses import GilWatch

LIMIT = 21
TIMES = 30
WORDS = 20_000
VOWELS, CONSONANTS = "aeiou", "bcdfghklmnprstvw"


def make_titles(count: int) -> list[str]:
    """Titles of one to eight words, of which few are frequent."""
    draw = random.Random(20261123)  # noqa: S311 - the same titles each time
    words = [
        "".join(draw.choice(CONSONANTS) + draw.choice(VOWELS) for _ in range(draw.randint(1, 4))) for _ in range(WORDS)
    ]
    weights = list(accumulate(1 / (10 + rank) for rank in range(WORDS)))
    return [" ".join(draw.choices(words, cum_weights=weights, k=draw.randint(1, 8))).title() for _ in range(count)]


def choose_queries(titles: Sequence[str]) -> dict[str, str]:
    """Queries by what they stand for."""
    rare = titles[len(titles) * 9 // 10]
    return {
        "one letter": "s",
        "four letters": next(word for title in titles for word in title.split() if len(word) > 4)[:4],
        "a rare title": rare,
        "its first letters": rare[: max(3, len(rare) * 2 // 3)],
        "letters that are nowhere": "zqxj",
    }


def build_ours(titles: Sequence[str]) -> tuple[int, Callable[[str], object]]:
    """Bytes, and the search."""
    stopped = threading.Event()
    index = TitleIndex.build(titles, Pace(stopped))
    return index.size_bytes, lambda query: index.find(fold(query), LIMIT, Pace(stopped))


def build_sqlite(titles: Sequence[str]) -> tuple[int, Callable[[str], object]]:
    """Likewise."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE titles USING fts5(title, tokenize='trigram', columnsize=0)")

    def rows() -> Iterator[tuple[int, str]]:
        for place, title in enumerate(titles):
            yield place, fold(title).decode()

    database.executemany("INSERT INTO titles(rowid, title) VALUES (?, ?)", rows())
    [pages], [page_bytes] = (database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    question = "SELECT rowid FROM titles WHERE titles MATCH ? ORDER BY rowid LIMIT ?"
    return pages * page_bytes, lambda query: database.execute(question, (f'"{query}"', LIMIT)).fetchall()


def measure(search: Callable[[str], object], query: str) -> tuple[float, float, float]:
    """Milliseconds of a search: by the clock and of CPU, medians; and the longest that one of them held the GIL."""
    took_ms, used_ms = [], []
    with GilWatch() as watch:
        for _ in range(TIMES):
            began_s, used_s = time.perf_counter(), time.thread_time()
            search(query)
            took_ms.append(1e3 * (time.perf_counter() - began_s))
            used_ms.append(1e3 * (time.thread_time() - used_s))
    return statistics.median(took_ms), statistics.median(used_ms), 1e3 * watch.longest_s


def main(count: int) -> None:
    """Build, search and print."""
    titles = make_titles(count)
    for name, build in (("scan", build_ours), ("sqlite", build_sqlite)):
        with GilWatch() as watch:
            began_s, used_s = time.perf_counter(), time.thread_time()
            size, search = build(titles)
            took_s, used_s = time.perf_counter() - began_s, time.thread_time() - used_s
        say(
            f"{name}, {count} titles: built in {took_s:.2f} s, {used_s:.2f} s of CPU, GIL held "
            f"{1e3 * watch.longest_s:.1f} ms; {size / MIB:.1f} MiB"
        )
        for what, query in choose_queries(titles).items():
            took_ms, used_ms, held_ms = measure(search, query)
            say(f"  {what}: {took_ms:.2f} ms, {used_ms:.2f} of CPU, GIL held {held_ms:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.item_search", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--items", type=int, default=200_000, help="how many titles (default: %(default)s)")
    main(parser.parse_args().items)
