"""The index of titles against a search that looks at one title after the other."""

import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.search import title_index
from service.search.folding import fold
from service.search.pace import OutOfTime, Pace
from service.search.title_index import TitleIndex, read_titles

LETTERS = "ab \u00c9e'-\u00df\u4e03"


def pace(**given_s):
    """A pace that nobody stops."""
    return Pace(threading.Event(), **given_s)


def search_plainly(titles, text, most):
    """Each title that contains it: those that begin with it, with a word that does, the others; in order."""

    def kind(title):
        return 0 if title.startswith(text) else 1 if f" {text}" in title else 2

    folded = [fold(title).decode() for title in titles]
    matches = [(kind(title), place) for place, title in enumerate(folded) if text in title]
    return [place for _, place in sorted(matches)][:most]


@given(
    titles=st.lists(st.text(LETTERS, max_size=8), max_size=12),
    query=st.text(LETTERS, min_size=1, max_size=4),
    most=st.integers(1, 8),
)
def test_matches_are_those_of_a_plain_search(titles, query, most):
    """In the same order, whatever the texts are and however they fall into parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(title_index, "PART", 3)
        index = TitleIndex.build(titles, pace())
        if text := fold(query):
            assert index.find(text, most, pace()) == search_plainly(titles, text.decode(), most)


def test_matches_among_many():
    """With parts as they are: 2,000 titles of few words, and queries of one letter and more."""
    draw = random.Random(3)  # noqa: S311 - a fixed choice
    words = ["star", "wars", "trek", "the", "at", "start", "a", "art", "", "\u00e9tat"]
    titles = [" ".join(draw.choices(words, k=draw.randrange(4))) for _ in range(2000)]
    index = TitleIndex.build(iter(titles), pace())
    assert index.size_bytes == sum(len(fold(title)) + 1 for title in titles)
    for query in ("s", "a", "t", "st", "star", "star w", "tar", "rek s", "etat a", "the the the", "nothing", "\u4e03"):
        for most in (1, 21, 51, 5000):
            assert index.find(fold(query), most, pace()) == search_plainly(titles, fold(query).decode(), most)


def test_titles_come_from_metadata():
    """In the order given; arrays are joined, and what is no text is no title."""
    values = ['{"t": "A"}', '{"t": ["B", 1, "C"]}', '{"t": 7}', "{}", '{"t": null}', '{"x": "y", "t": ""}', '{"t": {}}']
    metadata = [value.encode() for value in values]
    assert list(read_titles(metadata, range(7, 0, -1), "t")) == ["", "", "", "", "", "B C", "A"]


def test_work_ends_when_nobody_waits():
    """Neither a search nor a build goes on beyond its time, or after the service stopped."""
    stopped = threading.Event()
    index = TitleIndex.build(["a"] * 1000, Pace(stopped))
    late = Pace(stopped, within_s=-1)
    with pytest.raises(OutOfTime):
        index.find(b"a", 10, late)
    stopped.set()
    with pytest.raises(OutOfTime):
        index.find(b"a", 10, Pace(stopped))
    with pytest.raises(OutOfTime):
        TitleIndex.build(["a"], Pace(stopped))


def test_work_rests():
    """Half of the time is for others: a build sleeps about as long as it works."""
    began_s, used_s = time.perf_counter(), time.thread_time()
    TitleIndex.build((f"Title number {number}" for number in range(30_000)), pace())
    used_s = time.thread_time() - used_s
    assert time.perf_counter() - began_s > 1.3 * used_s
