"""Changes of the catalogue over HTTP: who sees them, what they say, and what is refused."""

import asyncio
from types import SimpleNamespace

import numpy as np
import orjson
import pytest
from redis import Redis

from model.contract.bundle import METADATA, read_bundle
from model.contract.sessions import Sessions
from service.catalogue.live import LEASE_S
from service.errors import EngineUnavailable
from service.inference.model import LiveModel
from service.search.folding import fold

CANARY = "c4n4ry"
JSON = {"content-type": "application/json"}


@pytest.fixture
def shop(make_shop):
    """A service of the tiny bundle, and an empty catalogue."""
    return make_shop()


def change(client, method, path, document=None, status=200):
    """The receipt of a change."""
    response = client.request(method, path, **({} if document is None else {"json": document}))
    assert response.status_code == status, response.text
    return response.json()


def names(answer):
    """The item ids of an answer."""
    return [item["item_id"] for item in answer["items"]]


def test_a_change_and_its_repetition(shop):
    """The receipt counts what changed and has the version; the same again changes nothing."""
    receipt = change(shop, "PUT", "/items/i01", {"metadata": {"title": "New"}, "available": False})
    assert set(receipt) == {"changed", "catalogue_version", "took_ms"}
    assert (receipt["changed"], receipt["catalogue_version"]) == (1, 1)
    assert receipt["took_ms"] >= 1000 * LEASE_S
    again = change(shop, "PUT", "/items/i01", {"metadata": {"title": "New"}, "available": False})
    assert (again["changed"], again["catalogue_version"]) == (0, 1)


def test_before_the_first_change_answers_say_nothing_of_it(shop, user):
    """No field more than before, in any answer."""
    shop.send({"user_id": user, "item_id": "i01"})
    fields = {"recommendation_id", "user_id", "items", "count", "requested", "source", "degraded", "model", "history"}
    fields |= {"unknown_item_ids", "took_ms"}
    for answer in (shop.recommend(user_id=user), shop.recommend(items=["i01"]), shop.recommend(items=[])):
        assert set(answer) == fields
    assert set(shop.get("/items/i01").json()) == {"item_id", "metadata"}
    found = shop.get("/items?query=i01").json()
    assert set(found) == {"items", "count", "more", "took_ms"}
    assert set(found["items"][0]) == {"item_id", "metadata", "popularity_rank"}


def test_sold_out_is_in_the_next_answer_and_back_in_the_one_after(shop, user):
    """By history, by items, among candidates, popular, neighbours' stand-in, and in a batch."""
    shop.send({"user_id": user, "item_id": "i01"})
    questions = [
        {"user_id": user},
        {"items": ["i01", "i02"]},
        {"items": []},
        {"items": ["i01"], "ranker": "popular"},
        {"items": ["i01"], "candidate_item_ids": ["i03", "i04", "i05"]},
    ]
    best = [names(shop.recommend(**question))[0] for question in questions]
    for question, gone in zip(questions, best, strict=True):
        version = change(shop, "PATCH", f"/items/{gone}", {"available": False})["catalogue_version"]
        answer = shop.recommend(**question, k=20)
        assert gone not in names(answer)
        assert answer["catalogue"] == {"version": version, "behind": False}
        assert answer["degraded"] is None
        batch = shop.post("/recommend/batch", {"requests": [{**question, "ranker": "auto", "k": 20}] * 2}).json()
        assert not [one for one in batch["responses"] if gone in names(one)]
        version = change(shop, "PATCH", f"/items/{gone}", {"available": True})["catalogue_version"]
        answer = shop.recommend(**question, k=20)
        assert names(answer)[0] == gone
        assert answer["catalogue"]["version"] == version


def test_sold_out_still_counts_in_histories(shop):
    """What is not available may be what somebody did."""
    items = {"items": ["i01", "i02"], "candidate_item_ids": ["i05", "i06"]}
    before = shop.recommend(**items)
    change(shop, "PATCH", "/items/i02", {"available": False})
    assert shop.recommend(**items)["items"] == before["items"]


def test_every_rung_leaves_it_out(shop, user, monkeypatch):
    """The engine raises, the queue is full, time is over, the store is gone: none answers what is not available."""
    shop.send({"user_id": user, "item_id": "i01"})
    popular = names(shop.recommend(items=[], k=3))
    change(shop, "POST", "/items", {"items": [{"item_id": item_id, "available": False} for item_id in popular]})

    def check(answer, degraded, behind=False):
        assert answer["degraded"] == degraded
        assert len(names(answer)) == 17
        assert not set(names(answer)) & set(popular)
        assert answer["catalogue"] == {"version": 3, "behind": behind}

    ask = {"user_id": user, "k": 20, "exclude_seen": False}

    with monkeypatch.context() as patch:
        patch.setattr(LiveModel, "rank", _unavailable)
        check(shop.recommend(**ask), "engine_unavailable")
    shop.run(shop.service.recommender.variants.champion.batcher.close())
    check(shop.recommend(**ask), "engine_unavailable")
    with monkeypatch.context() as patch:
        patch.setattr(shop.service.store.multiplexer, "ask", _gone)
        check(shop.recommend(**ask), "engine_unavailable", behind=True)


def _unavailable(_model, _questions):
    raise EngineUnavailable("broken")


async def _gone(_commands):
    raise OSError("gone")


def test_neighbours_leave_it_out(make_shop, broken_bundle, monkeypatch):
    """When they are asked for, and while they stand in for an engine that fails."""
    sessions = Sessions(  # of i02, i07, i11; indexes follow the ids
        item_count=20, starts=np.array([0, 3]), items=np.array([8, 13, 17], dtype=np.int32), moments=np.zeros(1, int)
    )
    client = make_shop(bundle=broken_bundle("sessions.npy", sessions.to_bytes()))
    ask = {"items": ["i02"], "k": 20}
    assert names(client.recommend(**ask, ranker="neighbours"))[:2] == ["i07", "i11"]
    change(client, "PATCH", "/items/i07", {"available": False})

    def fail(_names, _feed):
        raise RuntimeError("broken")

    answers = [client.recommend(**ask, ranker="neighbours")]
    monkeypatch.setattr(client.service.model.engine, "_session", SimpleNamespace(run=fail))
    answers.append(client.recommend(**ask))
    for answer in answers:
        assert answer["source"] == "neighbours"
        assert names(answer)[0] == "i11"
        assert "i07" not in names(answer)


def test_late_and_overloaded_answers_look_first(shop, monkeypatch):
    """Without a place in the queue, or without time, an answer knows the change that was acknowledged before."""
    gone = names(shop.recommend(items=[]))[0]
    change(shop, "PATCH", f"/items/{gone}", {"available": False})
    shop.recommend(items=[])
    change(shop, "PATCH", f"/items/{gone}", {"available": True})
    champion = shop.service.recommender.variants.champion
    monkeypatch.setattr(champion.batcher, "max_waiting", 0)
    answer = shop.recommend(items=["i01"])
    assert (answer["degraded"], answer["catalogue"]) == ("overloaded", {"version": 2, "behind": False})
    assert gone in names(answer)
    change(shop, "PATCH", f"/items/{gone}", {"available": False})
    answer = shop.recommend(items=["i01"])
    assert (answer["degraded"], answer["catalogue"]["version"]) == ("overloaded", 3)
    assert gone not in names(answer)


def test_a_batch_that_was_overtaken_does_not_decide(shop, monkeypatch):
    """Time is over while a batch waits for the catalogue and encodes by an older one: the answer is by what it says."""
    gone = names(shop.recommend(items=[]))[0]
    change(shop, "PATCH", "/items/i01", {"available": False})
    shop.recommend(items=[])
    change(shop, "PATCH", f"/items/{gone}", {"available": False})
    catalogue = shop.service.catalogue
    follow, calls = catalogue.follow, []

    async def follow_in_turn(since_s, *, within_s):
        calls.append(within_s)
        if len(calls) == 1:  # the batch's comes too late for the request, and knows nothing new
            await asyncio.sleep(0.15)
            return
        await asyncio.sleep(0.1)  # that of the late answer, which the batch overtakes
        await follow(since_s, within_s=10)

    monkeypatch.setattr(catalogue, "follow", follow_in_turn)
    answer = shop.recommend(items=["x/history"], timeout_ms=100, k=20)
    assert (answer["degraded"], len(calls)) == ("deadline", 2)
    assert answer["catalogue"] == {"version": 2, "behind": False}
    assert gone not in names(answer)


def test_without_the_store_the_last_state_counts(shop, user, monkeypatch):
    """Answers go on, degraded where they are today, and say that they may lack changes; changes are refused."""
    change(shop, "PATCH", "/items/i05", {"available": False})
    shop.recommend(items=["i01"])
    monkeypatch.setattr(shop.service.store.multiplexer, "ask", _gone)
    for question, degraded in (({"items": ["i01"]}, None), ({"user_id": user}, "store_unavailable")):
        answer = shop.recommend(**question, k=20)
        assert "i05" not in names(answer)
        assert (answer["degraded"], answer["catalogue"]) == (degraded, {"version": 1, "behind": True})
    assert shop.counts()["nextitem_catalogue_behind_total"] == 2
    refused = shop.request("PATCH", "/items/i05", json={"available": True})
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:nextitem:problem:store-unavailable")
    assert shop.get("/items/i05").json()["catalogue"] == {"version": 1, "behind": True}
    monkeypatch.undo()
    assert shop.recommend(items=["i01"])["catalogue"] == {"version": 1, "behind": False}
    assert shop.counts()["nextitem_catalogue_version"] == 1


def test_a_new_worker_begins_with_all_of_it(shop, make_client, own_store):
    """A restart forgets nothing, and the first answer knows it."""
    change(shop, "POST", "/items", {"items": [{"item_id": f"i0{n}", "available": False} for n in range(1, 6)]})
    change(shop, "DELETE", "/items/i06")
    fresh = make_client(redis_url=own_store.url)
    assert fresh.counts()["nextitem_catalogue_version"] == 6
    answer = fresh.recommend(items=["i07"], k=20)
    assert not set(names(answer)) & {f"i0{n}" for n in range(1, 7)}
    assert answer["catalogue"] == {"version": 6, "behind": False}


def test_metadata_are_the_catalogue_s(shop):
    """In GET /items/{id} and in answers, all of them and by name; what is put back is the bundle's again."""
    of_bundle = shop.get("/items/i03").json()["metadata"]
    change(shop, "PUT", "/items/i03", {"metadata": {"title": "Changed", "price": 9.5}})
    described = shop.get("/items/i03").json()
    assert described == {
        "item_id": "i03",
        "metadata": {"title": "Changed", "price": 9.5},
        "available": True,
        "recommendable": True,
        "catalogue": {"version": 1, "behind": False},
    }
    ask = {"items": ["i01"], "candidate_item_ids": ["i03"]}
    assert shop.recommend(**ask, return_metadata=True)["items"][0]["metadata"] == {"title": "Changed", "price": 9.5}
    named = shop.recommend(**ask, return_metadata=["price", "year"])["items"][0]["metadata"]
    assert named == {"price": 9.5}
    assert change(shop, "PATCH", "/items/i03", {"available": False})["changed"] == 1
    assert shop.get("/items/i03").json()["metadata"] == {"title": "Changed", "price": 9.5}
    assert change(shop, "PUT", "/items/i03", {})["changed"] == 1
    assert shop.get("/items/i03").json()["metadata"] == of_bundle
    assert shop.recommend(**ask, return_metadata=True)["items"][0]["metadata"] == of_bundle


def test_a_new_item_is_known_but_not_recommended(shop):
    """It is stored, found and described, and says that no model knows it; events of it are taken as ever."""
    assert shop.get("/items/new%2F1").status_code == 404
    change(shop, "PATCH", "/items/new%2F1", {"available": True}, status=404)
    change(shop, "PUT", "/items/new%2F1", {"metadata": {"title": "Brand new"}})
    described = shop.get("/items/new%2F1").json()
    assert (described["available"], described["recommendable"]) == (True, False)
    assert described["metadata"] == {"title": "Brand new"}
    [found] = shop.get("/items?query=brand").json()["items"]
    assert found == {
        "item_id": "new/1",
        "metadata": {"title": "Brand new"},
        "popularity_rank": None,
        "available": True,
        "recommendable": False,
    }
    answer = shop.recommend(items=["i01", "new/1"], candidate_item_ids=["new/1", "i02"])
    assert names(answer) == ["i02"]
    assert answer["unknown_item_ids"] == ["new/1"]


def test_a_deleted_item_is_gone_for_good(shop, own_store, make_client):
    """404, not found and never answered, after a restart too; deleting again is no error; PUT makes it anew."""
    of_bundle = shop.get("/items/i04").json()["metadata"]
    change(shop, "PUT", "/items/i04", {"metadata": {"title": "Last days"}})
    assert change(shop, "DELETE", "/items/i04")["changed"] == 1
    assert change(shop, "DELETE", "/items/i04")["changed"] == 0
    for client in (shop, make_client(redis_url=own_store.url)):
        assert client.get("/items/i04").status_code == 404
        found = [item["item_id"] for item in client.get("/items?query=i04").json()["items"]]
        found += [item["item_id"] for item in client.get("/items?query=last%20days").json()["items"]]
        assert found == []
        assert "i04" not in names(client.recommend(items=["i01"], k=20))
        change(client, "PATCH", "/items/i04", {"available": True}, status=404)
    change(shop, "DELETE", "/items/nobody", status=404)
    change(shop, "PUT", "/items/i04", {})
    assert shop.get("/items/i04").json()["metadata"] == of_bundle
    assert "i04" in names(shop.recommend(items=["i01"], k=20))


def test_many_at_once_are_all_or_none(shop):
    """What is not given stays as it is; one entry that is wrong refuses all."""
    items = [{"item_id": "i01", "metadata": {"title": "One"}}, {"item_id": "i02", "available": False}, {"item_id": "n"}]
    assert change(shop, "POST", "/items", {"items": items})["changed"] == 3
    assert change(shop, "POST", "/items", {"items": [{"item_id": "i01", "available": False}]})["changed"] == 1
    described = shop.get("/items/i01").json()
    assert (described["metadata"], described["available"]) == ({"title": "One"}, False)
    wrong = {"items": [{"item_id": "i03", "available": False}, {"item_id": "i04", "available": CANARY}]}
    refused = shop.post("/items", wrong)
    assert refused.status_code == 422
    assert refused.json()["errors"] == [
        {"pointer": "/items/1/available", "code": "bool_type", "detail": "must be true or false"}
    ]
    assert shop.get("/items/i03").json()["available"] is True


def test_the_searches_of_changed_titles(make_shop, bundle_path, broken_bundle):
    """As looking at each item one by one has it, whatever was changed."""
    bundle = read_bundle(bundle_path)
    ids = bundle.vocabulary.item_ids
    titles = {item_id: f"Star {number % 3} wars" for number, item_id in enumerate(ids)}
    lines = b"".join(orjson.dumps({"title": titles[item_id]}) + b"\n" for item_id in ids)
    client = make_shop(bundle=broken_bundle(METADATA, lines))
    changes = {"i01": "Wars of the star", "i02": "Nothing", "new": "Star trek", "i99": "A starry night", "star": ""}
    items = [{"item_id": item_id, "metadata": {"title": title}} for item_id, title in changes.items()]
    change(client, "POST", "/items", {"items": [*items, {"item_id": "i03", "available": False}]})
    for item_id in ("i04", "i99"):
        change(client, "DELETE", f"/items/{item_id}")
    order = client.service.model.vocabulary.decode(client.service.model.popular.order.tolist())
    known = {**titles, **changes}
    for gone in ("i04", "i99"):
        del known[gone]

    def kind(item_id, query):
        title, text = fold(known[item_id]).decode(), fold(query).decode()
        if item_id == query:
            return 0
        if text and text in title:
            return 1 if title.startswith(text) else 2 if f" {text}" in title else 3
        return 4 if item_id.startswith(query) else None

    for query in ("star", "wars", "star 1", "tar", "i0", "i04", "i99", "new", "ne", "trek", "nothing", "0 w", "zebra"):
        matches = [item_id for item_id in known if kind(item_id, query) is not None]
        place = {item_id: order.index(item_id) if item_id in order else len(order) for item_id in matches}
        expected = sorted(matches, key=lambda item_id: (kind(item_id, query), place[item_id], item_id))
        for limit in (1, 3, 50):
            found = client.get("/items", params={"query": query, "limit": limit}).json()
            assert names(found) == expected[:limit], query
            assert found["more"] == (len(expected) > limit)
            assert [item["available"] for item in found["items"]] == [name != "i03" for name in names(found)]


def test_an_answer_may_wait_for_a_version(shop, ask_in_time):
    """409 when the catalogue does not reach it in time; 200 as soon as it does."""
    ask = {"items": ["i01"], "min_catalogue_version": 1, "timeout_ms": 300}
    answers = ask_in_time(lambda: shop.post("/recommend", ask), within_s=0.3)
    assert {answer.status_code for answer in answers} == {409}
    assert answers[-1].json()["type"] == "urn:nextitem:problem:catalogue-version"
    assert shop.post("/recommend", {**ask, "min_catalogue_version": 0}).status_code == 200
    version = change(shop, "PATCH", "/items/i02", {"available": False})["catalogue_version"]
    assert shop.recommend(items=["i01"], min_catalogue_version=version)["catalogue"]["version"] == version
    assert shop.post("/recommend", {**ask, "min_catalogue_version": version + 1}).status_code == 409
    batch = {"requests": [{**ask, "min_catalogue_version": version + 1}]}
    assert shop.post("/recommend/batch", batch).status_code == 409


BAD_ITEMS: list[tuple[dict, str, str]] = [
    ({CANARY: 1}, "", "extra_forbidden"),
    *(({"metadata": value}, "/metadata", "object_type") for value in (CANARY, None, [CANARY], 5, True)),
    ({"metadata": {"a": CANARY * 400}}, "/metadata", "too_long"),
    ({"metadata": {"a": "x" * 2041}}, "/metadata", "too_long"),
    *(({"available": value}, "/available", "bool_type") for value in (CANARY, None, 1, "true", [CANARY])),
    ({"metadata": {}, "available": True, CANARY: {}}, "", "extra_forbidden"),
]


@pytest.mark.parametrize(("document", "pointer", "code"), BAD_ITEMS)
@pytest.mark.parametrize("method", ["PUT", "PATCH", "POST"])
def test_wrong_fields_of_items(client, method, document, pointer, code):
    """Each is named by a pointer and a code, and nothing of it is repeated."""
    if method == "POST":
        response = client.post("/items", {"items": [{"item_id": "i01", **document}]})
        pointer = f"/items/0{pointer}"
    else:
        response = client.request(method, "/items/i01", json=document)
    assert response.status_code == 422, response.text
    assert [(fault["pointer"], fault["code"]) for fault in response.json()["errors"]] == [(pointer, code)]
    assert CANARY not in response.text


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        ({}, "/items", "missing"),
        ({"items": []}, "/items", "too_short"),
        ({"items": {CANARY: 1}}, "/items", "list_type"),
        ({"items": [{"item_id": "i01"}], CANARY: 1}, "", "extra_forbidden"),
        ({"items": [CANARY]}, "/items/0", "object_type"),
        ({"items": [{}]}, "/items/0/item_id", "missing"),
        ({"items": [{"item_id": f"{CANARY} x"}]}, "/items/0/item_id", "pattern"),
        ({"items": [{"item_id": "i01"}, {"item_id": "i01"}]}, "/items/1/item_id", "repeated"),
        ({"items": [{"item_id": f"n{n}"} for n in range(1001)]}, "/items", "too_long"),
    ],
)
def test_wrong_lists_of_items(client, document, pointer, code):
    """The envelope is checked like the rest."""
    response = client.post("/items", document)
    assert response.status_code == 422, response.text
    assert [(fault["pointer"], fault["code"]) for fault in response.json()["errors"]] == [(pointer, code)]
    assert CANARY not in response.text


def test_odd_changes_are_refused(client):
    """No change in a PATCH, odd ids and parameters, bodies that are too large or too deep, other media types."""
    empty = client.request("PATCH", "/items/i01", json={})
    assert [fault["code"] for fault in empty.json()["errors"]] == ["missing_change"]
    for path in ("/items/", "/items/a%20b", f"/items/{'x' * 257}", "/items/%C3%A9", "/items/a%0Ab"):
        for method, options in (("PUT", {"json": {}}), ("PATCH", {"json": {"available": True}}), ("DELETE", {})):
            assert client.request(method, path, **options).status_code == 422, (method, path)
    assert client.request("DELETE", f"/items/i01?{CANARY}=1").status_code == 422
    assert client.request("PUT", "/items/i01?x=1", json={}).status_code == 422
    assert client.request("PUT", "/items/i01", content=b" " * 33_000, headers=JSON).status_code == 413
    assert client.post("/items", content=b" " * (4 * 2**20 + 1), headers=JSON).status_code == 413
    assert client.request("PUT", "/items/i01", content=b"{}").status_code == 415
    deep = b'{"metadata":' + b'{"a":' * 300 + b"1" + b"}" * 301
    refused = client.request("PUT", "/items/i01", content=deep, headers=JSON)
    assert [fault["code"] for fault in refused.json()["errors"]] == ["too_long"]


def test_the_last_that_passes(shop):
    """2,048 bytes of metadata, escaped in every character, an id of 256 characters, and a thousand of them."""
    text = "é" * 1020  # 2,040 bytes
    body = b'{"metadata":{"a":"%s"}}' % (b"\\u00e9" * 1020)
    response = shop.request("PUT", f"/items/{'x' * 256}", content=body, headers=JSON)
    assert response.status_code == 200, response.text
    assert shop.get(f"/items/{'x' * 256}").json()["metadata"] == {"a": text}
    items = [{"item_id": f"n{number}", "metadata": {"a": "x" * 2000}} for number in range(1000)]
    assert change(shop, "POST", "/items", {"items": items})["changed"] == 1000
    assert shop.get("/items/n999").json()["metadata"] == {"a": "x" * 2000}


def test_a_swapped_model_has_a_mask_of_its_own(shop, make_client, own_store, broken_bundle):
    """Masks belong to vocabularies: what is hidden is hidden in the next model too, by its own numbers."""
    change(shop, "PATCH", "/items/i05", {"available": False})
    answer = shop.recommend(items=["i01"], k=20)
    other = make_client(bundle=broken_bundle("", b""), redis_url=own_store.url)
    assert "i05" not in names(answer)
    assert "i05" not in names(other.recommend(items=["i01"], k=20))
    vocabularies = [client.service.model.vocabulary for client in (shop, other)]
    assert shop.service.catalogue.find_allowed(vocabularies[1]) is not shop.service.catalogue.find_allowed(
        vocabularies[0]
    )


def test_a_read_brings_the_version_along(shop, user, own_store):
    """One more GET in the round trip of histories, and no other command, with a catalogue and without."""
    shop.send({"user_id": user, "item_id": "i01"})
    with Redis.from_url(own_store.url) as raw:

        def calls(question, times=20):
            raw.config_resetstat()
            for _ in range(times):
                shop.recommend(**question)
            counted = raw.info("commandstats")
            return {name: counted.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("get", "lrange", "xrange")}

        assert calls({"user_id": user}) == {"get": 40, "lrange": 20, "xrange": 0}
        before = calls({"items": ["i01"]})
        assert before["get"] <= 4, before  # one in LEASE_S
        change(shop, "PATCH", "/items/i05", {"available": False})
        shop.recommend(items=["i01"])
        assert calls({"user_id": user}) == {"get": 40, "lrange": 20, "xrange": 0}
        assert calls({"items": ["i01"]}) == {"get": 20, "lrange": 0, "xrange": 0}
        change(shop, "PATCH", "/items/i06", {"available": False})
        assert calls({"user_id": user}) == {"get": 40, "lrange": 20, "xrange": 1}
