"""What is not available, or not allowed by a request's filter, is in no list: similar items, pins, diversity, caps."""

import asyncio
import copy
import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.bundles import seal
from model.contract.bundle import MANIFEST, locate_bundle
from service.api.similar import SimilarRequest
from service.business_rules import arrangement
from service.ranking.batcher import BatcherStopped
from service.recommend.similar import find_similar

SIMILAR = Path(__file__).parent.parent / "similar"
FILTERS = [
    ({"field": "genres", "in": ["Drama", "War"]}, lambda known: {"Drama", "War"} & {*known["genres"]}),
    ({"field": "year", "gte": 1996}, lambda known: known.get("year", 0) >= 1996),
    ({"not": {"field": "genres", "in": ["Comedy"]}}, lambda known: "Comedy" not in known["genres"]),
    ({"field": "title", "in": ["c4n4ry"]}, lambda _known: False),
]


@pytest.fixture(scope="module")
def whole_bundle(tmp_path_factory, filterable_bundle):
    """The bundle that can be filtered and has neighbours, with a graph of similar items."""
    folder = shutil.copytree(locate_bundle(filterable_bundle), tmp_path_factory.mktemp("whole") / "bundle")
    names = json.loads((folder / MANIFEST).read_bytes())["files"]
    for file in SIMILAR.iterdir():
        shutil.copy(file, folder)
    seal(folder, files=dict.fromkeys([*names, *(file.name for file in SIMILAR.iterdir())]))
    return folder


@pytest.fixture
def shop(make_shop, whole_bundle):
    """A service of it, and an empty catalogue."""
    return make_shop(bundle=whole_bundle)


def say(client, item_ids, **fields):
    """Change items; the version of the catalogue after that."""
    response = client.post("/items", {"items": [{"item_id": item_id, **fields} for item_id in item_ids]})
    assert response.status_code == 200, response.text
    return response.json()["catalogue_version"]


def find(client, **fields):
    """The answer of POST /similar, which must be 200."""
    response = client.post("/similar", {"timeout_ms": 2000, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def names(answer):
    """The item ids of an answer."""
    return [item["item_id"] for item in answer["items"]]


@pytest.mark.parametrize("by", ["taste", "next"])
def test_sold_out_is_not_similar_and_back_it_is(shop, by):
    """From the very next answer on, whose catalogue says so; the item asked about may be sold out itself."""
    asked = {"item_ids": ["i02", "i07"], "by": by, "k": 20}
    before = find(shop, **asked)
    assert "catalogue" not in before
    gone = names(before)[:3]
    version = say(shop, [*gone, "i02"], available=False)
    answer = find(shop, **asked)
    assert answer["items"] == [{**item, "rank": rank} for rank, item in enumerate(before["items"][3:], start=1)]
    assert (answer["count"], answer["degraded"]) == (15, None)
    assert answer["catalogue"] == {"version": version, "behind": False}
    version = say(shop, [*gone, "i02"], available=True)
    answer = find(shop, **asked)
    assert (answer["items"], answer["catalogue"]["version"]) == (before["items"], version)


def test_every_rung_of_similar_items_leaves_it_out(shop, monkeypatch):
    """The graph fails, the queue is full, time is over, the store is gone."""
    champion = shop.service.recommender.variants.champion
    gone = names(shop.recommend(items=[], k=3)) + names(find(shop, item_ids=["i02"], k=3))
    version = say(shop, gone, available=False)

    def check(answer, source, degraded, behind=False):
        assert (answer["source"], answer["degraded"]) == (source, degraded)
        assert answer["count"] == 20 - len({*gone, "i02"})
        assert not {*names(answer)} & {*gone}
        assert answer["catalogue"] == {"version": version, "behind": behind}

    asked: dict[str, Any] = {"item_ids": ["i02"], "k": 20}
    check(find(shop, **asked), "similar", None)
    with monkeypatch.context() as patch:
        patch.setattr(shop.service.model.similar.engine, "_session", SimpleNamespace(run=_fail))
        check(find(shop, **asked), "neighbours", "engine_unavailable")
    with monkeypatch.context() as patch:
        patch.setattr(champion.similar, "max_waiting", 0)
        check(find(shop, **asked), "popular", "overloaded")
    with monkeypatch.context() as patch:
        patch.setattr(shop.service.store.multiplexer, "ask", _gone)
        check(find(shop, **asked), "similar", None, behind=True)
    assert shop.counts()["nextitem_catalogue_behind_total"] == 1
    shop.run(champion.similar.close())
    check(find(shop, **asked), "neighbours", "engine_unavailable")


@pytest.mark.parametrize("by", ["taste", "next"])
def test_similar_items_may_wait_for_a_version(shop, by):
    """409 when the catalogue does not reach it in time; the answer as soon as it does."""
    asked = {"item_ids": ["i02"], "by": by, "timeout_ms": 100}
    refused = shop.post("/similar", {**asked, "min_catalogue_version": 1})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:nextitem:problem:catalogue-version")
    assert shop.post("/similar", {**asked, "min_catalogue_version": 0}).status_code == 200
    version = say(shop, ["i07"], available=False)
    assert find(shop, item_ids=["i02"], by=by, min_catalogue_version=version)["catalogue"]["version"] == version

    async def ask_and_change():
        asking = asyncio.create_task(
            shop.http.post("/similar", json={**asked, "timeout_ms": 2000, "min_catalogue_version": version + 1})
        )
        await asyncio.sleep(0.05)
        assert not asking.done()
        changed = await shop.http.patch("/items/i08", json={"available": False})
        assert changed.json()["catalogue_version"] == version + 1
        return await asking

    answer = shop.run(ask_and_change())
    assert (answer.status_code, answer.json()["catalogue"]["version"]) == (200, version + 1)
    assert not {"i07", "i08"} & {*names(answer.json())}


def _fail(*_given):
    raise RuntimeError("injected")


async def _gone(_commands):
    raise OSError("gone")


def test_a_model_that_retires_meanwhile_leaves_it_to_the_next(shop):
    """While a request looked at the catalogue, another model took over: that one answers."""
    champion = shop.service.recommender.variants.champion

    async def stop(*_given, **_named):
        raise BatcherStopped

    retired = copy.copy(champion)
    retired.similar = SimpleNamespace(submit=stop)

    champions = iter([retired, champion, champion])

    class Recommender:
        variants = property(lambda _self: SimpleNamespace(champion=next(champions)))

    request = SimilarRequest(item_ids=["i02"], timeout_ms=2000)
    given: dict[str, Any] = {"metrics": shop.service.metrics, "started_s": time.perf_counter()}
    answer = shop.run(find_similar(Recommender(), request, **given))  # type: ignore[arg-type]  # as much of one as is asked
    assert (answer["source"], answer["degraded"]) == ("similar", None)
    assert shop.counts()['nextitem_similar_total{result="similar"}'] == 1


@pytest.mark.parametrize("by", ["taste", "next"])
@pytest.mark.parametrize("number", range(len(FILTERS)))
def test_similar_items_obey_a_filter(shop, known, by, number):
    """The unfiltered list without the rest, and how many of the catalogue match and are available."""
    document, matches = FILTERS[number]
    say(shop, ["i05"], available=False)
    asked = {"item_ids": ["i02"], "by": by, "k": 20}
    plain = find(shop, **asked)
    answer = find(shop, **asked, filter=document, return_metadata=["genres"])
    assert names(answer) == [item_id for item_id in names(plain) if matches(known[item_id])]
    assert answer["allowed"] == sum(bool(matches(item)) for item_id, item in known.items() if item_id != "i05")
    assert [item["metadata"]["genres"] for item in answer["items"]] == [known[one]["genres"] for one in names(answer)]
    scores = {item["item_id"]: item["score"] for item in plain["items"]}
    assert [item["score"] for item in answer["items"]] == pytest.approx(
        [scores[one] for one in names(answer)], abs=1e-5
    )
    refused = shop.post("/similar", {**asked, "filter": {"field": "c4n4ry", "exists": True}})
    assert refused.status_code == 422
    assert [(error["pointer"], error["code"]) for error in refused.json()["errors"]] == [
        ("/filter/field", "unknown_field")
    ]
    assert "c4n4ry" not in refused.text


def draw_request(draw, ids):
    """A request with a filter, a cap and pins, unknown and repeatedly sold-out items among them."""
    k = int(draw.integers(1, 12))
    count = int(draw.integers(1, min(k, 5) + 1))
    items = draw.choice([*ids, "nobody"], size=count, replace=False).tolist()
    ranks = (draw.choice(k, size=count, replace=False) + 1).tolist()
    return {
        "items": draw.choice(ids, size=draw.integers(0, 4)).tolist(),
        "exclude_seen": bool(draw.random() < 0.5),
        "exclude_item_ids": draw.choice(ids, size=draw.integers(0, 4)).tolist(),
        "ranker": str(draw.choice(["auto", "neighbours", "rules", "popular"])),
        "k": k,
        "pins": [{"item_id": item, "rank": rank} for item, rank in zip(items, ranks, strict=True)],
        "max_per": {"field": str(draw.choice(["genres", "year", "new"])), "count": int(draw.integers(1, 4))},
    }


def list_values(item, field):
    """The values of a field, each once."""
    found = item.get(field, [])
    return {str(value) for value in (found if isinstance(found, list) else [found])}


def arrange_slowly(plain, rules, known):
    """Items with scores, and whether they are pinned, by plain loops down a whole list of what may be answered."""
    may = dict(plain)
    pins = {pin["rank"]: pin["item_id"] for pin in rules["pins"] if pin["item_id"] in may}
    taken: list[str] = []
    listed: list[tuple[str, float, bool]] = []
    for item_id, score in plain:
        values = list_values(known[item_id], rules["max_per"]["field"])
        if item_id in pins.values() or len(listed) == rules["k"] - len(pins):
            continue
        if all(taken.count(value) < rules["max_per"]["count"] for value in values):
            listed.append((item_id, score, False))
            taken += values
    for rank, item_id in sorted(pins.items()):
        listed.insert(rank - 1, (item_id, may[item_id], True))
    return listed


def test_filter_cap_and_pins_together_as_plain_loops_have_them(shop, filtering, known):
    """While a quarter of the catalogue is sold out, by the model, neighbours, rules and popular items."""
    draw, ids = np.random.default_rng(23), list(known)
    gone = {*draw.choice(ids, size=5, replace=False).tolist()}
    say(shop, gone, available=False)
    shown = {"pinned": 0, "held back": 0}
    for number in range(200):
        asked = draw_request(draw, ids)
        document, matches = FILTERS[number % len(FILTERS)]
        whole = filtering.recommend(**{**asked, "pins": [], "max_per": None, "k": 20})
        plain = [
            (item["item_id"], item["score"])
            for item in whole["items"]
            if matches(known[item["item_id"]]) and item["item_id"] not in gone
        ]
        expected = arrange_slowly(plain, asked, known)
        answer = shop.recommend(**asked, filter=document)
        got = [(item["item_id"], item.get("pinned", False)) for item in answer["items"]]
        assert got == [(item_id, pinned) for item_id, _, pinned in expected], asked
        assert [item["score"] for item in answer["items"]] == pytest.approx([one[1] for one in expected], abs=1e-4)
        assert (answer["source"], answer["degraded"]) == (whole["source"], None)
        shown["pinned"] += sum(pinned for _, pinned in got)
        shown["held back"] += len(expected) < min(asked["k"], len(plain))
    assert min(shown.values()) > 20, shown


BOOSTS = [{"filter": FILTERS[1][0], "add": 3}, {"filter": FILTERS[2][0], "add": -3}]


@pytest.mark.parametrize("boosts", [[], BOOSTS], ids=["plain", "boosted"])
@pytest.mark.parametrize("ranker", ["auto", "neighbours", "rules", "popular"])
def test_no_pool_holds_what_is_sold_out(shop, known, monkeypatch, ranker, boosts):
    """With diversity, and in the rounds that a cap needs behind the first pool, each of them of sets or not."""
    monkeypatch.setattr(arrangement, "POOL_FACTOR", 1)
    asked = {"items": ["i02"], "k": 6, "ranker": ranker, "boosts": boosts}
    rules = {"diversity": 0.7, "max_per": {"field": "genres", "count": 2}}
    for _ in range(4):
        best = names(shop.recommend(**asked, **rules))
        assert best
        version = say(shop, best[:2], available=False)
        answer = shop.recommend(**asked, **rules, pins=[{"item_id": best[0], "rank": 1}])
        without = shop.recommend(**asked, **rules)
        assert (answer["items"], answer["degraded"]) == (without["items"], None)
        assert answer["catalogue"] == {"version": version, "behind": False}
        assert not {*names(answer)} & {*best[:2]}
        genres = [genre for item_id in names(answer) for genre in known[item_id]["genres"]]
        assert max(map(genres.count, genres)) <= 2


def test_ruled_lists_of_every_rung_leave_it_out(shop, monkeypatch):
    """The engine fails, and the queue of ruled requests is full."""
    champion = shop.service.recommender.variants.champion
    gone = names(shop.recommend(items=[], k=4))
    say(shop, gone, available=False)
    asked = {
        "items": ["i02"],
        "k": 8,
        "pins": [{"item_id": gone[0], "rank": 1}],
        "max_per": {"field": "genres", "count": 2},
    }
    with monkeypatch.context() as patch:
        patch.setattr(shop.service.model.engine, "_session", SimpleNamespace(run=_fail))
        failed = shop.recommend(**asked)
    monkeypatch.setattr(champion.batcher_for(SimpleNamespace(ruled=True)), "max_waiting", 0)
    full = shop.recommend(**asked)
    assert (failed["degraded"], full["degraded"]) == ("engine_unavailable", "overloaded")
    for answer in (failed, full):
        assert answer["count"] > 2
        assert not {*names(answer)} & {*gone}
        assert not [item for item in answer["items"] if "pinned" in item]


def test_caps_count_what_answers_show(shop):
    """Metadata that the catalogue changed count as changed."""
    asked = {"items": ["i02"], "k": 20, "max_per": {"field": "shelf", "count": 1}, "return_metadata": ["shelf"]}
    whole = names(shop.recommend(**asked))
    assert len(whole) == 19
    say(shop, whole[:4], metadata={"shelf": "upper"})
    answer = shop.recommend(**asked)
    assert names(answer) == [whole[0], *whole[4:]]
    assert answer["items"][0]["metadata"] == {"shelf": "upper"}
