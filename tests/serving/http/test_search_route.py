"""GET /items: what is found and in which order, for the model of now, and what happens when there is no time for it."""

import asyncio
import gc
import json
import threading
import time
import weakref
from urllib.parse import quote

import pytest

from benchmarks.reliability.swaps.traffic import make_root
from model.contract.bundle import METADATA, read_bundle
from model.contract.deployment.changes import use
from model.contract.deployment.writer import change_deployment
from service.deployment import watcher
from service.deployment.probe import Verdict
from service.search import item_search
from service.search.folding import fold
from service.search.title_index import TitleIndex


@pytest.fixture(scope="module")
def catalogue(bundle_path):
    """The bundle's items with their metadata, the most popular first."""
    bundle = read_bundle(bundle_path)
    known = dict(zip(bundle.vocabulary.item_ids, map(json.loads, bundle.metadata), strict=True))
    return {item_id: known[item_id] for item_id in bundle.vocabulary.decode(bundle.rank_popular().tolist())}


def search(client, query, **parameters):
    """The answer to a search, which must be 200."""
    rest = "".join(f"&{name}={value}" for name, value in parameters.items())
    response = client.get(f"/items?query={quote(query, safe='')}{rest}")
    assert response.status_code == 200, response.text
    return response.json()


def names(found):
    """The item ids of an answer."""
    return [item["item_id"] for item in found["items"]]


def search_plainly(catalogue, query, field="title"):
    """The ids that match, by looking at each item: the exact id, then by title, then the ids that begin so."""

    def kind(item_id):
        title, text = fold(catalogue[item_id].get(field, "")).decode(), fold(query).decode()
        if item_id == query:
            return 0
        if text and text in title:
            return 1 if title.startswith(text) else 2 if f" {text}" in title else 3
        return 4 if item_id.startswith(query) else None

    kinds = {item_id: kind(item_id) for item_id in catalogue}
    return sorted((item_id for item_id in kinds if kinds[item_id] is not None), key=kinds.__getitem__)


QUERIES = ["i05", "I0", "i0", "i", "t", "title", "TITLE OF I1", "of", "f i1", "le", "a/b", "a b", "x", "x/history", "1"]
QUERIES += ["100%", "100", "%", "%2F", "2f", "{07}:*", "{", "__", "__proto__", "const", "<", '<script>"&', '"', "zebra"]


@pytest.mark.parametrize("limit", [1, 3, 50])
@pytest.mark.parametrize("query", QUERIES)
def test_matches_and_their_order(client, catalogue, query, limit):
    """As looking at each item one by one has it; with what is known of each, and whether there is more."""
    found = search(client, query, limit=limit)
    expected = search_plainly(catalogue, query)
    assert names(found) == expected[:limit]
    assert found["count"] == len(found["items"])
    assert found["more"] == (len(expected) > limit)
    ranks = list(catalogue)
    assert [item["popularity_rank"] for item in found["items"]] == [
        ranks.index(item_id) + 1 for item_id in names(found)
    ]
    assert [item["metadata"] for item in found["items"]] == [catalogue[item_id] for item_id in names(found)]
    assert 0 < found["took_ms"] < 60_000


def test_twenty_unless_said_otherwise(make_client, broken_bundle, bundle_path):
    """A search without a limit; spaces around the query do not count."""
    client = make_client(bundle=broken_bundle(METADATA, b'{"title": "Same"}\n' * 20))
    assert search(client, "  sAmé ")["count"] == 20
    assert search(client, "same", limit=19)["more"]
    everything = read_bundle(bundle_path)
    assert names(search(client, "same")) == everything.vocabulary.decode(everything.rank_popular().tolist())


def test_another_field(make_client, broken_bundle, bundle_path):
    """The titles may be in any field, and be arrays; another type is no title."""
    ids = read_bundle(bundle_path).vocabulary.item_ids
    titles = {
        "i01": "Amélie",
        "i02": ["Le fabuleux destin", "d'Amélie Poulain"],
        "i03": 7,
        "i04": None,
        "i05": {"a": "b"},
    }
    lines = [json.dumps({"name": titles.get(item_id, ""), "title": "Amelie"}) for item_id in ids]
    client = make_client(bundle=broken_bundle(METADATA, ("\n".join(lines) + "\n").encode()), search_field="name")
    assert names(search(client, "amelie")) == ["i01", "i02"]
    assert names(search(client, "POULAIN")) == ["i02"]
    assert names(search(client, "7")) == []


def test_without_titles(make_client, broken_bundle, bundle_path, catalogue):
    """A bundle without metadata is searched by the beginnings of its ids."""
    files = {name: vars(file) for name, file in read_bundle(bundle_path).manifest.files.items() if name != METADATA}
    client = make_client(bundle=broken_bundle("", b"", files=files))
    found = search(client, "i0", limit=5)
    assert names(found) == [item_id for item_id in catalogue if item_id.startswith("i0")][:5]
    assert found["more"]
    assert all(item["metadata"] == {} for item in found["items"])
    assert names(search(client, "title")) == []


def test_switched_off(make_client):
    """The route is not there, and says why; single items are described all the same."""
    client = make_client(search="off")
    response = client.get("/items?query=i01")
    assert (response.status_code, response.json()["type"]) == (404, "urn:nextitem:problem:not-found")
    assert "--search off" in response.json()["detail"]
    assert client.get("/items/i01").status_code == 200


def test_head_is_answered_as_get(client):
    """As on every route."""
    assert client.request("HEAD", "/items?query=i01").status_code == 200


def test_the_search_follows_the_model(make_client, tmp_path, monkeypatch):
    """After a swap the new model's items are found and no others, and nothing of the old one stays in memory."""
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, ""))
    root = make_root(tmp_path / "bundles")
    client = make_client(bundle=root, follow_s=0.05)
    deadline = time.monotonic() + 60
    while not client.get("/model").json()["follows"]:
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    assert {name.partition("-")[0] for name in names(search(client, "title", limit=50))} == {"red"}
    assert names(search(client, "red-i01")) == ["red-i01"]
    old = client.service.model
    index = client.service.item_search._indexes[old].result()
    left = [weakref.ref(part) for part in (old, index)]
    del old, index
    change_deployment(root, use("blue"), action="use", by="test", force=True)
    while client.get("/model").json()["version"] != "blue":
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    assert {name.partition("-")[0] for name in names(search(client, "title", limit=50))} == {"blue"}
    assert names(search(client, "red-i01")) == []
    gc.collect()
    while any(part() is not None for part in left):
        assert time.monotonic() < deadline, [part() for part in left]
        client.run(asyncio.sleep(0.02))
    assert len(client.service.item_search._indexes) == 1


def test_not_ready_while_the_index_is_built(make_client, monkeypatch):
    """503 with Retry-After, while everything else is answered; one build serves all who ask."""
    build, gate, builds = TitleIndex.build, threading.Event(), []

    def build_slowly(titles, pace):
        builds.append(pace)
        assert gate.wait(60)
        return build(titles, pace)

    monkeypatch.setattr(TitleIndex, "build", build_slowly)
    monkeypatch.setattr(item_search, "BUILD_WAIT_S", 0.05)
    client = make_client()
    for _ in range(3):
        response = client.get("/items?query=c4n4ry")
        assert (response.status_code, response.json()["type"]) == (503, "urn:nextitem:problem:search-not-ready")
        assert 1 <= int(response.headers["retry-after"]) <= 3
        assert "c4n4ry" not in response.text
    assert client.recommend(items=["i01"])["source"] == "model"
    gate.set()
    monkeypatch.setattr(item_search, "BUILD_WAIT_S", 60)
    assert names(search(client, "i05"))[0] == "i05"
    assert len(builds) == 1


def test_an_index_that_could_not_be_built_is_tried_again(make_client, monkeypatch, caplog):
    """One request fails, the log says why, and the next search builds it."""
    build = TitleIndex.build
    monkeypatch.setattr(TitleIndex, "build", lambda _titles, _pace: 1 / 0)
    client = make_client()
    assert client.get("/items?query=i01").status_code == 500
    assert [record for record in caplog.records if "could not be built" in record.getMessage()]
    monkeypatch.setattr(TitleIndex, "build", build)
    assert names(search(client, "i05"))[0] == "i05"


def test_searches_are_bounded_in_number_and_time(make_client, monkeypatch):
    """More than the limit at once, and those whose time runs out, get 503; recommendations go on."""
    client = make_client()
    search(client, "i01")
    find, gate = TitleIndex.find, threading.Event()

    def find_slowly(index, *given):
        assert gate.wait(60)
        return find(index, *given)

    monkeypatch.setattr(TitleIndex, "find", find_slowly)
    monkeypatch.setattr(item_search, "SEARCH_S", 0.2)

    async def crowd():
        asked = [
            asyncio.ensure_future(client.http.get("/items?query=c4n4ry")) for _ in range(item_search.MAX_SEARCHES + 2)
        ]
        refused, _ = await asyncio.wait(asked, timeout=1)
        answer = await client.http.post("/recommend", json={"items": ["i01"], "timeout_ms": 2000})
        gate.set()
        return [one.result() for one in refused], answer, await asyncio.gather(*asked)

    refused, answer, responses = client.run(crowd())
    assert len(refused) == 2
    assert answer.json()["source"] == "model"
    assert {response.json()["type"] for response in responses} == {"urn:nextitem:problem:overloaded"}
    assert sum("took too long" in response.json()["detail"] for response in responses) == item_search.MAX_SEARCHES
    assert all("c4n4ry" not in response.text and "retry-after" in response.headers for response in responses)
    monkeypatch.setattr(item_search, "SEARCH_S", 60)
    assert names(search(client, "i05"))[0] == "i05"


def test_a_service_that_stops_ends_a_build(make_client, monkeypatch, caplog):
    """Nothing waits for an index that nobody will use."""
    begun = threading.Event()

    def build_forever(_titles, pace):
        begun.set()
        while True:
            pace.rest()

    monkeypatch.setattr(TitleIndex, "build", build_forever)
    monkeypatch.setattr(item_search, "BUILD_WAIT_S", 0.05)
    client = make_client()
    assert client.get("/items?query=i01").status_code == 503
    assert begun.wait(60)
    client.service.item_search.close()
    deadline = time.monotonic() + 60
    while len(client.service.item_search._indexes):
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    assert not [record for record in caplog.records if "could not be built" in record.getMessage()]
