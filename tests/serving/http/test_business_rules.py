"""Pins, diversity and max_per in POST /recommend: lists of plain loops over plain answers, in every source."""

import asyncio
import json
import shutil
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.bundles import rename_items, seal
from model.contract.bundle import point_current, read_bundle
from model.contract.deployment.changes import set_candidate
from model.contract.deployment.writer import change_deployment
from model.contract.sessions import Sessions
from service.business_rules import arrangement
from service.deployment import watcher
from service.deployment.probe import Verdict
from service.inference.engine import Ranked

CHAMPION, CANDIDATE = "20261121T101500-tiny", "20261122T101500-trial"
CASES = 100
"""By HTTP; a thousand of each are arranged in tests/serving/business_rules."""


@pytest.fixture(scope="module")
def values(similar_client):
    """The values of `year` by item id, none of an item without it."""
    model = similar_client.service.model
    found = {item_id: json.loads(model.find_metadata(item_id)).get("year") for item_id in model.vocabulary.item_ids}
    return {item_id: {year} - {None} for item_id, year in found.items()}


@pytest.fixture(scope="module")
def cosine(similar_client):
    """A function: the cosine of two items' rows."""
    model = similar_client.service.model
    rows = model.similar.find_rows(np.arange(1, 21, dtype=np.int32)).astype(np.float64)
    index_of = model.vocabulary.index_of
    return lambda one, other: float(rows[index_of(one) - 1] @ rows[index_of(other) - 1])


def settle(answer):
    """Items with scores, and whether they are pinned."""
    return [(item["item_id"], item["score"], item.get("pinned", False)) for item in answer["items"]]


def pick_slowly(plain, *, most, count, diversity, values, cosine):
    """From a whole list of items with scores: by plain loops, one item after the other."""
    left = list(plain)
    picked: list[tuple[str, float]] = []
    taken: list[int] = []
    lowest, span = plain[-1][1], plain[0][1] - plain[-1][1] or 1.0

    def weigh(item_id, score):
        relevance = (1 - diversity) * (score - lowest) / span
        return relevance - diversity * max((cosine(item_id, one) for one, _ in picked), default=0)

    while left and len(picked) < most:
        weights = [round(weigh(*one), 9) for one in left]
        item_id, score = left.pop(weights.index(max(weights)))
        if count is None or all(taken.count(value) < count for value in values[item_id]):
            picked.append((item_id, score))
            taken += values[item_id]
    return picked


def draw_rules(draw, ids, k):
    """Some of the three, pins of unknown items among them."""
    rules: dict[str, Any] = {}
    if draw.random() < 0.6:
        count = int(draw.integers(1, min(k, 6) + 1))
        items = draw.choice([*ids, "nobody"], size=count, replace=False).tolist()
        ranks = (draw.choice(k, size=count, replace=False) + 1).tolist()
        rules["pins"] = [{"item_id": item, "rank": rank} for item, rank in zip(items, ranks, strict=True)]
    if draw.random() < 0.6:
        rules["diversity"] = int(draw.integers(0, 5)) / 4
    if draw.random() < 0.6:
        rules["max_per"] = {"field": "year", "count": int(draw.integers(1, 4))}
    return rules


def test_lists_are_those_of_plain_loops(similar_client, values, cosine):
    """Items, order, scores and marks, from the model and from popular items, with exclusions and candidates."""
    draw = np.random.default_rng(17)
    ids = similar_client.service.model.vocabulary.item_ids
    for _ in range(CASES):
        k = int(draw.integers(1, 12))
        asked = {
            "items": draw.choice(ids, size=draw.integers(0, 4)).tolist(),
            "exclude_seen": bool(draw.random() < 0.5),
            "exclude_item_ids": draw.choice(ids, size=draw.integers(0, 4)).tolist(),
        }
        if draw.random() < 0.3:
            asked["candidate_item_ids"] = draw.choice(ids, size=12).tolist()
        rules = draw_rules(draw, ids, k)
        whole = similar_client.recommend(**asked, k=20)
        plain = [(item["item_id"], item["score"]) for item in whole["items"]]
        answer = similar_client.recommend(**asked, **rules, k=k)
        assert (answer["source"], answer["degraded"]) == (whole["source"], None)
        may = dict(plain)
        pins = {pin["rank"]: pin["item_id"] for pin in rules.get("pins", []) if pin["item_id"] in may}
        rest = [one for one in plain if one[0] not in pins.values()]
        pool = rest[: 10 * k]
        picked = (
            pick_slowly(
                pool,
                most=k - len(pins),
                count=rules.get("max_per", {}).get("count"),
                diversity=rules.get("diversity", 0.0),
                values=values,
                cosine=cosine,
            )
            if pool
            else []
        )
        expected = [(*one, False) for one in picked]
        for rank, item_id in sorted(pins.items()):
            expected.insert(rank - 1, (item_id, may[item_id], True))
        got = settle(answer)
        assert [(item, pinned) for item, _, pinned in got] == [(item, pinned) for item, _, pinned in expected], rules
        assert [score for _, score, _ in got] == pytest.approx([score for _, score, _ in expected], abs=1e-5)
        assert [item["rank"] for item in answer["items"]] == list(range(1, len(expected) + 1))
        named = {pin["item_id"] for pin in rules.get("pins", [])}
        assert set(answer["unknown_item_ids"]) == named & {"nobody"}


def test_plain_answers_know_nothing_of_it(client):
    """Absent or empty, the fields change no byte but for id and time."""
    asked = {"items": ["i01"], "k": 5}
    plain = client.recommend(**asked)
    nothing: list[dict[str, Any]] = [{"pins": []}, {"diversity": 0}, {"max_per": None}]
    for absent in [*nothing, {"pins": [], "diversity": 0.0, "max_per": None}]:
        answer = client.recommend(**asked, **absent)
        for one in ("recommendation_id", "took_ms"):
            answer[one] = plain[one]
        assert answer == plain
        assert all(list(item) == ["item_id", "score", "rank"] for item in answer["items"])


@pytest.mark.parametrize("source", ["model", "popular"])
def test_pins_need_nothing_of_the_bundle(client, source):
    """At their ranks, marked, with the score that the source gives them; the others move down."""
    asked = {"items": ["i01"], "ranker": source, "k": 20, "exclude_seen": False}
    plain = settle(client.recommend(**asked))
    last, middle = plain[19], plain[9]
    pins = [{"item_id": last[0], "rank": 1}, {"item_id": middle[0], "rank": 3}]
    got = settle(client.recommend(**asked | {"k": 4}, pins=pins))
    assert [(item, pinned) for item, _, pinned in got] == [
        (last[0], True),
        (plain[0][0], False),
        (middle[0], True),
        (plain[1][0], False),
    ]
    assert [score for _, score, _ in got] == pytest.approx([last[1], plain[0][1], middle[1], plain[1][1]], abs=1e-5)


def test_what_may_not_be_answered_is_not_pinned(client):
    """Excluded, seen, no candidate, unknown: the list is as if it were not pinned."""
    pins = [{"item_id": "i02", "rank": 1}]
    for asked in (
        {"items": ["i01"], "exclude_item_ids": ["i02"]},
        {"items": ["i01", "i02"]},
        {"items": ["i01"], "candidate_item_ids": ["i03", "i04"]},
    ):
        assert client.recommend(**asked, pins=pins)["items"] == client.recommend(**asked)["items"]
    assert client.recommend(items=["i01", "i02"], exclude_seen=False, pins=pins)["items"][0]["pinned"] is True


def test_a_short_list_ends_with_its_pins(client):
    """Where there are too few others, a pin stands behind them; and pins alone may be the list."""
    asked = {"items": ["i01"], "candidate_item_ids": ["i02", "i03", "i04"], "k": 10}
    got = client.recommend(**asked, pins=[{"item_id": "i02", "rank": 9}])["items"]
    assert [item["item_id"] for item in got][-1] == "i02"
    assert len(got) == 3
    [only] = client.recommend(items=["i01"], k=1, pins=[{"item_id": "i05", "rank": 1}])["items"]
    assert (only["item_id"], only["rank"], only["pinned"]) == ("i05", 1, True)


def test_a_cap_asks_again_and_then_answers_less(client, values, monkeypatch):
    """Items behind the first pool fill the list; after three rounds it is short. Its length says so."""
    monkeypatch.setattr(arrangement, "POOL_FACTOR", 1)
    asked = {"items": ["i01"], "exclude_seen": False}
    whole = [item["item_id"] for item in client.recommend(**asked, k=20)["items"]]
    rounds = []
    rank = type(client.service.model).rank

    def note(self, questions):
        rounds.append(len(questions))
        return rank(self, questions)

    monkeypatch.setattr(type(client.service.model), "rank", note)
    answer = client.recommend(**asked, k=6, max_per={"field": "year", "count": 1})
    expected: list[str] = []
    taken: set[int] = set()
    for item_id in whole[: 3 * 6]:
        if not values[item_id] & taken:
            expected.append(item_id)
            taken |= values[item_id]
    assert [item["item_id"] for item in answer["items"]] == expected[:6]
    assert rounds == [1, 1, 1][: len(rounds)]
    assert len(rounds) > 1
    assert (answer["requested"], answer["count"]) == (6, len(expected[:6]))


@pytest.mark.parametrize(
    ("rules", "option"),
    [({"diversity": 0.5}, "--similar"), ({"max_per": {"field": "year", "count": 1}}, "--items")],
    ids=["diversity", "max_per"],
)
def test_what_the_bundle_lacks_is_named(make_client, broken_bundle, bundle_path, rules, option):
    """422 `not_published`, also where the engine is not asked, and nothing is lost for others."""
    files = {
        name: vars(file) for name, file in read_bundle(bundle_path).manifest.files.items() if name != "metadata.jsonl"
    }
    client = make_client(bundle=broken_bundle("", b"", files=files))
    [field] = rules
    for source in ("auto", "popular"):
        response = client.post("/recommend", {"items": ["i01"], "ranker": source, **rules})
        assert response.status_code == 422
        [error] = response.json()["errors"]
        assert (error["pointer"], error["code"]) == (f"/{field}", "not_published")
        assert option in error["detail"]
    assert client.recommend(items=["i01"])["source"] == "model"


RULES = {"pins": [{"item_id": "i05", "rank": 2}], "max_per": {"field": "year", "count": 2}, "diversity": 0.5}


def check_obeyed(answer, values):
    """The pin stands where it should, and no value comes more often than it may, but for the pin."""
    items = answer["items"]
    assert (items[1]["item_id"], items[1].get("pinned")) == ("i05", True)
    years = [year for item in items if "pinned" not in item for year in values[item["item_id"]]]
    assert years
    assert max(map(years.count, years)) <= 2
    assert len({item["item_id"] for item in items}) == len(items)


def test_every_rung_of_the_ladder_obeys(make_client, similar_bundle, tmp_path, values, monkeypatch):
    """The model, neighbours while it fails, popular items while time is out, and each of them asked for by name."""
    sessions = Sessions(
        item_count=20,
        starts=np.array([0, 20]),
        items=np.arange(1, 21, dtype=np.int32),
        moments=np.zeros(1, dtype=np.int64),
    )
    folder = add_sessions(similar_bundle, tmp_path, sessions.to_bytes())
    client = make_client(bundle=folder)
    asked = {"items": ["i02"], "k": 6, **RULES}
    for ranker in ("auto", "model", "neighbours", "popular"):
        answer = client.recommend(**asked, ranker=ranker)
        assert answer["source"] == ("model" if ranker == "auto" else ranker)
        check_obeyed(answer, values)
    check_obeyed(client.recommend(**asked | {"items": []}), values)

    def fail(_names, _feed, *_options):
        raise RuntimeError("injected")

    monkeypatch.setattr(client.service.model.engine, "_session", SimpleNamespace(run=fail))
    answer = client.recommend(**asked)
    assert (answer["source"], answer["degraded"]) == ("neighbours", "engine_unavailable")
    check_obeyed(answer, values)
    answer = client.recommend(**asked, ranker="model")
    assert (answer["source"], answer["degraded"]) == ("popular", "engine_unavailable")
    check_obeyed(answer, values)
    variant = client.service.recommender.variants.champion
    monkeypatch.setattr(variant.batcher_for(SimpleNamespace(ruled=True)), "max_waiting", 0)
    answer = client.recommend(**asked)
    assert (answer["source"], answer["degraded"]) == ("popular", "overloaded")
    check_obeyed(answer, values)


def add_sessions(bundle, tmp_path, content):
    """A copy of the bundle with neighbours."""
    folder = shutil.copytree(bundle, tmp_path / "with-sessions")
    (folder / "sessions.npy").write_bytes(content)
    described = json.loads((folder / "manifest.json").read_bytes())["files"] | {"sessions.npy": {}}
    seal(folder, files=described)
    return folder


def test_rows_that_cannot_be_had_leave_the_order(make_client, similar_bundle, monkeypatch):
    """The model's list by score, and the reason."""
    client = make_client(bundle=similar_bundle)
    plain = client.recommend(items=["i01"], k=5)

    def fail(_names, _feed, *_options):
        raise RuntimeError("injected")

    monkeypatch.setattr(client.service.model.similar.engine, "_session", SimpleNamespace(run=fail))
    answer = client.recommend(items=["i01"], k=5, diversity=0.9)
    assert (answer["source"], answer["degraded"]) == ("model", "engine_unavailable")
    assert answer["items"] == plain["items"]


def test_a_late_list_is_no_answer(make_client, similar_bundle, values, monkeypatch):
    """Beyond the deadline popular items are answered, by the same rules."""
    client = make_client(bundle=similar_bundle)
    engine = type(client.service.model.engine)
    rank = engine.rank

    def rank_slowly(self, feed) -> Ranked:
        time.sleep(0.2)
        return rank(self, feed)

    monkeypatch.setattr(engine, "rank", rank_slowly)
    response = client.post("/recommend", {"items": ["i02"], "k": 6, "timeout_ms": 100, **RULES})
    answer = response.json()
    assert (response.status_code, answer["source"], answer["degraded"]) == (200, "popular", "deadline")
    check_obeyed(answer, values)


def test_reasons_are_those_of_the_list(similar_client):
    """Explained and arranged: each item of the answer has its own reasons, pinned ones too."""
    answer = similar_client.recommend(items=["i01", "i02", "i03"], k=5, explain=True, **RULES)
    assert (answer["source"], answer["explained"]) == ("model", 3)
    for item in answer["items"]:
        named = {"candidate_item_ids": [item["item_id"]], "exclude_seen": False}
        [whole] = similar_client.recommend(items=["i01", "i02", "i03"], **named)["items"]
        for reason in item["reasons"]:
            kept = [one for one in ("i01", "i02", "i03") if one != reason["item_id"]]
            [without] = similar_client.recommend(items=kept, **named)["items"]
            assert reason["weight"] == pytest.approx(whole["score"] - without["score"], abs=1e-4)
    assert any(item["reasons"] for item in answer["items"])


def test_stored_histories_and_metadata_come_as_without(similar_client, user):
    """Rules change the list alone: history, its version, metadata and unknown items are as in every answer."""
    similar_client.send({"user_id": user, "item_id": "i04"})
    answer = similar_client.recommend(user_id=user, min_history_version=1, k=4, return_metadata=["year"], **RULES)
    assert (answer["history"]["version"], answer["source"]) == (1, "model")
    assert "i04" not in {item["item_id"] for item in answer["items"]}
    assert answer["items"][1]["metadata"] == {"year": 2003}
    response = similar_client.post("/recommend", {"user_id": user, "min_history_version": 2, "timeout_ms": 50, **RULES})
    assert response.status_code == 409


def test_ruled_requests_share_runs_among_themselves(make_client, similar_bundle, monkeypatch):
    """Twenty at once get each its own list; a plain request beside them is not in their batch."""
    client = make_client(bundle=similar_bundle)
    model = type(client.service.model)
    rank, sizes = model.rank, []

    def note(self, questions):
        sizes.append(len(questions))
        return rank(self, questions)

    monkeypatch.setattr(model, "rank", note)
    ids = client.service.model.vocabulary.item_ids
    asked = [{"items": [item_id], "k": 5, "timeout_ms": 2000, **RULES} for item_id in ids]
    alone = [settle(client.recommend(**one)) for one in asked]
    sizes.clear()

    async def ask_all():
        post = client.http.post
        plain = {"items": ["i01"], "timeout_ms": 2000}
        return await asyncio.gather(*(post("/recommend", json=one) for one in [*asked, plain]))

    *ruled, plain = [answer.json() for answer in client.run(ask_all())]
    for got, expected in zip(map(settle, ruled), alone, strict=True):
        assert [(item, pinned) for item, _, pinned in got] == [(item, pinned) for item, _, pinned in expected]
        assert [score for _, score, _ in got] == pytest.approx([score for _, score, _ in expected], abs=1e-5)
    assert plain["source"] == "model"
    assert 1 in sizes
    assert len(sizes) < 2 * len(ids)


@pytest.mark.parametrize("rule", RULES)
def test_batches_take_none(client, rule):
    """Refused by name, not answered without."""
    response = client.post(
        "/recommend/batch", {"requests": [{"items": ["i01"]}, {"items": ["i01"], rule: RULES[rule]}]}
    )
    assert response.status_code == 422
    assert [(error["pointer"], error["code"]) for error in response.json()["errors"]] == [
        (f"/requests/1/{rule}", "rules_batch")
    ]
    empty = {"items": ["i01"], "pins": [], "diversity": 0, "max_per": None}
    assert client.post("/recommend/batch", {"requests": [empty]}).status_code == 200


def test_a_candidate_that_lacks_something_leaves_it_to_the_champion(
    make_client, bundle_path, similar_bundle, tmp_path, monkeypatch
):
    """Its users get what they ask for, and it counts as no failure of its; who forces it is told."""
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, ""))
    root = tmp_path / "bundles"
    shutil.copytree(similar_bundle, root / CHAMPION)
    point_current(root, CHAMPION)
    rename_items(bundle_path, root, CANDIDATE, prefix="")
    client = make_client(bundle=root, follow_s=0.05)
    change_deployment(root, set_candidate(CANDIDATE, mode="canary", share=1.0), action="test", by="test", force=True)
    deadline = time.monotonic() + 60
    while not ((model := client.get("/model").json())["candidate"] and model["candidate"]["in_use"]):
        assert time.monotonic() < deadline, model
        client.run(asyncio.sleep(0.02))

    asked = {"user_id": "u-on-trial", "items": ["i01"], "k": 5}
    assert client.recommend(**asked)["model"]["version"] == CANDIDATE
    assert client.recommend(**asked, pins=RULES["pins"])["model"]["version"] == CANDIDATE
    answer = client.recommend(**asked, diversity=0.5)
    assert (answer["model"]["version"], answer["source"], answer["degraded"]) == (CHAMPION, "model", None)
    assert client.counts()['nextitem_variant_fallbacks_total{reason="unpublished"}'] == 1
    assert client.post("/recommend", {**asked, "diversity": 0.5, "variant": "candidate"}).status_code == 422
    assert not client.service.recommender.variants.candidate.monitor.out_of_use
