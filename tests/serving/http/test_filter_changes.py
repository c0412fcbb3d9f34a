"""Filters over metadata that the catalogue changed: the next answer knows them, or says that it is behind."""

import asyncio

import pytest

from service.catalogue import changed_metadata
from service.catalogue.changed_metadata import ChangedMetadata

DRAMA = {"field": "genres", "in": ["Drama"]}
LATE = {"field": "year", "gte": 2030}


@pytest.fixture(scope="module")
def dramas(known):
    """The bundle's items of that genre."""
    return {item_id for item_id, item in known.items() if "Drama" in item["genres"]}


def change(client, method, item_id, document=None):
    """The version of the catalogue after a change."""
    given = {} if document is None else {"json": document}
    response = client.request(method, f"/items/{item_id}", **given)
    assert response.status_code == 200, response.text
    return response.json()["catalogue_version"]


def list_answers(client, document):
    """The answer to one question by every way: each ranker, in a batch, and as similar items."""
    asked = {"items": ["i02"], "k": 20, "filter": document, "timeout_ms": 2000}
    yield from (client.recommend(**asked, ranker=ranker) for ranker in ("auto", "model", "neighbours", "popular"))
    yield from client.post("/recommend/batch", {"requests": [asked, {"items": ["i02"]}, asked]}).json()["responses"][
        ::2
    ]
    similar = {"item_ids": ["i02"], "by": "next", "k": 20, "filter": document, "timeout_ms": 2000}
    yield client.post("/similar", similar).json()


def names(answer):
    """The item ids of an answer."""
    return {item["item_id"] for item in answer["items"]}


@pytest.mark.parametrize("ruled", [{}, {"max_per": {"field": "title", "count": 1}}], ids=["plain", "with a cap"])
def test_changed_metadata_count_in_the_next_answer(shop, dramas, ruled):
    """Into a filter, out of it, back to the bundle's, sold out and deleted."""
    asked = {"items": ["i02"], "k": 20, "exclude_seen": False, "filter": DRAMA, **ruled}
    expected = set(dramas)
    assert names(shop.recommend(**asked)) == expected
    [outside, *_] = sorted({f"i{number:02d}" for number in range(1, 20)} - dramas)
    inside, gone = sorted(dramas)[:2]
    for method, item_id, document, add in (
        ("PATCH", outside, {"metadata": {"genres": ["Drama", "Opera"]}}, True),
        ("PUT", inside, {"metadata": {"genres": "War"}}, False),
        ("PATCH", gone, {"metadata": {"genres": []}}, False),
        ("PUT", inside, {}, True),
        ("PATCH", inside, {"available": False}, False),
        ("PATCH", inside, {"available": True}, True),
        ("DELETE", outside, None, False),
        ("PUT", gone, {"metadata": {"genres": ["Drama"]}}, True),
    ):
        version = change(shop, method, item_id, document)
        (expected.add if add else expected.discard)(item_id)
        answer = shop.recommend(**asked)
        assert names(answer) == expected, (method, document)
        assert answer["allowed"] == len(expected)
        assert answer["catalogue"] == {"version": version, "behind": False}


def test_every_way_to_an_answer_knows_it(shop):
    """Each ranker, batches and similar items; none of them before."""
    for number, item_id in enumerate(("i03", "i07"), start=1):
        version = change(shop, "PUT", item_id, {"metadata": {"year": 2030 + number}})
        for answer in list_answers(shop, LATE):
            assert names(answer) == ({"i03", "i07"} if number == 2 else {"i03"})
            assert answer["allowed"] == number
            assert answer["catalogue"] == {"version": version, "behind": False}


def test_what_the_store_does_not_tell_is_behind(shop, monkeypatch):
    """The last known state is filtered by."""
    change(shop, "PUT", "i03", {"metadata": {"year": 2031}})
    assert names(shop.recommend(items=["i02"], filter=LATE)) == {"i03"}

    async def gone(_commands):
        raise OSError("gone")

    monkeypatch.setattr(shop.service.store.multiplexer, "ask", gone)
    answer = shop.recommend(items=["i02"], filter=LATE)
    assert (names(answer), answer["catalogue"]["behind"]) == ({"i03"}, True)


def test_a_filter_that_cannot_wait_for_all_of_it_says_so(shop, monkeypatch):
    """While much is read, filtered answers are behind, and too old for who wants that version; plain ones are not."""
    monkeypatch.setattr(changed_metadata, "AT_ONCE", 0)
    read_all, released = ChangedMetadata._read_all, asyncio.Event()

    async def read_later(self):
        await released.wait()
        await read_all(self)

    monkeypatch.setattr(ChangedMetadata, "_read_all", read_later)
    version = change(shop, "PUT", "i03", {"metadata": {"year": 2031}})
    asked = {"items": ["i02"], "filter": LATE, "timeout_ms": 1500}
    for _ in range(2):
        answer = shop.recommend(**asked)
        assert (names(answer), answer["allowed"]) == (set(), 0)
        assert answer["catalogue"] == {"version": 0, "behind": True}
        assert (answer["source"], answer["degraded"]) == ("model", None)
    response = shop.post("/recommend", {**asked, "min_catalogue_version": version})
    assert response.status_code == 409
    assert response.json()["type"].endswith("catalogue-version")
    plain = shop.recommend(items=["i02"], min_catalogue_version=version)
    assert plain["catalogue"] == {"version": version, "behind": False}
    released.set()
    answer = shop.recommend(**asked | {"timeout_ms": 2000}, min_catalogue_version=version)
    assert (names(answer), answer["catalogue"]) == ({"i03"}, {"version": version, "behind": False})


def test_unfiltered_requests_pay_nothing(shop):
    """Nobody reads changed metadata before somebody filters."""
    change(shop, "PUT", "i03", {"metadata": {"year": 2031}})
    assert shop.recommend(items=["i02"])["catalogue"]["version"] == 1
    overlay = shop.service.catalogue._overlay
    assert not overlay.watchers
    shop.recommend(items=["i02"], filter=LATE)
    assert len(overlay.watchers) == 1


def test_a_worker_that_starts_reads_what_was_changed_before(shop, make_client, own_store, filterable_bundle):
    """Its first filtered answer has it."""
    version = change(shop, "PUT", "i03", {"metadata": {"year": 2031}})
    other = make_client(bundle=filterable_bundle, redis_url=own_store.url)
    answer = other.recommend(items=["i02"], filter=LATE)
    assert (names(answer), answer["catalogue"]) == ({"i03"}, {"version": version, "behind": False})
