"""Boosts in POST /recommend: the list is that of adding to every score and sorting, whoever ranks."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

CASES = 300
"""By HTTP; a thousand of each kind are arranged in tests/serving/business_rules."""
FILTERS = [
    ({"field": "genres", "in": ["Drama", "War"]}, lambda known: {"Drama", "War"} & {*known["genres"]}),
    ({"field": "year", "gte": 1996}, lambda known: known.get("year", 0) >= 1996),
    ({"not": {"field": "genres", "in": ["Comedy"]}}, lambda known: "Comedy" not in known["genres"]),
    ({"field": "new", "in": [True]}, lambda known: known["new"]),
    ({"field": "title", "in": ["nothing"]}, lambda _known: False),
]


def draw_boosts(draw, size=1.0):
    """One to four of any filters, and what each adds, up to a multiple of the scores."""
    numbers = draw.choice(len(FILTERS), size=draw.integers(1, 5))
    return [(int(number), round(float(draw.uniform(-size, size)), 3)) for number in numbers]


def write(boosts):
    """As a request has them."""
    return [{"filter": FILTERS[number][0], "add": add} for number, add in boosts]


def find_add(boosts, item):
    """What the first boost that matches adds to an item's score."""
    return next((add for number, add in boosts if FILTERS[number][1](item)), 0.0)


def arrange_slowly(plain, asked, boosts, known):
    """By plain loops over a whole plain list: items, scores, marks. Pins stand last in the order of rules."""
    ordered = sorted(plain, key=lambda one: (-(one[1] + find_add(boosts, known[one[0]])), -one[1]))
    may, cap = dict(plain), asked.get("max_per")
    pins = {pin["rank"]: pin["item_id"] for pin in asked.get("pins", []) if pin["item_id"] in may}
    taken: list[str] = []
    listed: list[tuple[str, float, Any]] = []
    for item_id, score in ordered:
        values = [] if cap is None else known[item_id]["genres"]
        if item_id in pins.values() or len(listed) == asked["k"] - len(pins):
            continue
        if all(taken.count(value) < cap["count"] for value in values):
            listed.append((item_id, score, find_add(boosts, known[item_id]) or None))
            taken += values
    for rank, item_id in sorted(pins.items()):
        listed.insert(rank - 1, (item_id, may[item_id], "pinned"))
    return listed


def draw_request(draw, ids):
    """What else a request has: who ranks, what is out, a cap and pins."""
    k = int(draw.integers(1, 12))
    asked: dict[str, Any] = {
        "items": draw.choice(ids, size=draw.integers(0, 4)).tolist(),
        "exclude_seen": bool(draw.random() < 0.5),
        "exclude_item_ids": draw.choice(ids, size=draw.integers(0, 4)).tolist(),
        "ranker": str(draw.choice(["auto", "neighbours", "popular"])),
        "k": k,
    }
    if draw.random() < 0.3:
        asked["candidate_item_ids"] = draw.choice(ids, size=12).tolist()
    if draw.random() < 0.4:
        asked["max_per"] = {"field": "genres", "count": int(draw.integers(1, 4))}
    if draw.random() < 0.4:
        count = int(draw.integers(1, min(k, 4) + 1))
        ranks = (draw.choice(k, size=count, replace=False) + 1).tolist()
        items = draw.choice([*ids, "nobody"], size=count, replace=False).tolist()
        asked["pins"] = [{"item_id": item, "rank": rank} for item, rank in zip(items, ranks, strict=True)]
    return asked


def settle(answer):
    """Items, scores, and what is said of each."""
    return [
        (item["item_id"], item["score"], "pinned" if item.get("pinned") else item.get("boost"))
        for item in answer["items"]
    ]


def check(answer, expected, asked):
    """The same items in the same order, with the same marks and nearly the same scores."""
    got = settle(answer)
    assert [(item_id, mark) for item_id, _, mark in got] == [(item_id, mark) for item_id, _, mark in expected], asked
    assert [score for _, score, _ in got] == pytest.approx([score for _, score, _ in expected], abs=1e-4)


def test_lists_are_those_of_sums_sorted(shop, filtering, known):
    """With exclusions, candidates, filters, caps and pins, by every source, while a quarter is sold out."""
    draw, ids = np.random.default_rng(31), list(known)
    gone = {*draw.choice(ids, size=5, replace=False).tolist()}
    changed = [{"item_id": item_id, "available": False} for item_id in gone]
    assert shop.post("/items", {"items": changed}).status_code == 200
    moved: dict[str, int] = {}
    for _ in range(CASES):
        asked, wanted = draw_request(draw, ids), int(draw.integers(0, 2 * len(FILTERS)))
        whole = filtering.recommend(**{**asked, "pins": [], "max_per": None, "k": 20})
        plain = [
            (item["item_id"], item["score"])
            for item in whole["items"]
            if item["item_id"] not in gone and (wanted >= len(FILTERS) or FILTERS[wanted][1](known[item["item_id"]]))
        ]
        if wanted < len(FILTERS):
            asked["filter"] = FILTERS[wanted][0]
        spread = max((score for _, score in plain), default=1.0) - min((score for _, score in plain), default=0.0)
        boosts = draw_boosts(draw, size=min(10.0, max(0.1, spread)))
        answer = shop.recommend(**asked, boosts=write(boosts))
        assert (answer["source"], answer["degraded"]) == (whole["source"], None)
        check(answer, arrange_slowly(plain, asked, boosts, known), (asked, boosts))
        unboosted = arrange_slowly(plain, asked, [], known)
        moved[answer["source"]] = moved.get(answer["source"], 0) + (
            [one[0] for one in settle(answer)] != [one[0] for one in unboosted]
        )
    assert moved.keys() == {"model", "neighbours", "popular"}
    assert min(moved.values()) > 20, moved


def test_one_run_ranks_all_sets(make_client, filterable_bundle, monkeypatch):
    """A row for each set that has items, and one for the rest."""
    client = make_client(bundle=filterable_bundle)
    model = type(client.service.model)
    rank, sizes = model.rank, []

    def note(self, questions):
        sizes.append(len(questions))
        return rank(self, questions)

    monkeypatch.setattr(model, "rank", note)
    for boosts, rows in (([], 1), ([(1, 1.0)], 2), ([(1, 1.0), (4, 2.0), (0, -1.0), (1, 3.0)], 3)):
        client.recommend(items=["i02"], boosts=write(boosts))
        assert sizes.pop() == rows
    assert not sizes


RULES: dict[str, Any] = {
    "boosts": [{"filter": FILTERS[1][0], "add": 5}, {"filter": FILTERS[0][0], "add": -5}],
    "pins": [{"item_id": "i05", "rank": 2}],
}


def test_every_rung_of_the_ladder_obeys(make_client, filterable_bundle, known, monkeypatch):
    """Neighbours while the engine fails, popular items while the queue is full, no time is left or nothing is known."""
    client = make_client(bundle=filterable_bundle)
    asked: dict[str, Any] = {"items": ["i02"], "k": 8, **RULES}
    boosts = [(1, 5.0), (0, -5.0)]

    def check_rung(ranker, source, degraded, **changes):
        plain_of = {"items": ["i02"], "k": 20, "ranker": ranker} | changes
        plain = [(item["item_id"], item["score"]) for item in client.recommend(**plain_of)["items"]]
        answer = client.post("/recommend", {"timeout_ms": 2000, **asked, **changes}).json()
        assert (answer["source"], answer["degraded"]) == (source, degraded)
        check(answer, arrange_slowly(plain, asked, boosts, known), source)

    check_rung("auto", "model", None)
    check_rung("popular", "popular", None, items=[])
    champion = client.service.recommender.variants.champion
    with monkeypatch.context() as patch:
        patch.setattr(champion.batcher_for(SimpleNamespace(ruled=True)), "max_waiting", 0)
        check_rung("popular", "popular", "overloaded")

    def fail(*_given):
        raise RuntimeError("injected")

    monkeypatch.setattr(client.service.model.engine, "_session", SimpleNamespace(run=fail))
    check_rung("neighbours", "neighbours", "engine_unavailable")


def test_reasons_are_differences_of_the_scores_shown(filtering):
    """What was added is no part of a score, and none of a reason."""
    history = ["i01", "i02", "i03"]
    answer = filtering.recommend(items=history, k=5, explain=True, **RULES)
    assert (answer["source"], answer["explained"]) == ("model", 3)
    assert any("boost" in item for item in answer["items"])
    for item in answer["items"]:
        named = {"candidate_item_ids": [item["item_id"]], "exclude_seen": False}
        [whole] = filtering.recommend(items=history, **named)["items"]
        assert item["score"] == pytest.approx(whole["score"], abs=1e-4)
        for reason in item["reasons"]:
            [without] = filtering.recommend(items=[one for one in history if one != reason["item_id"]], **named)[
                "items"
            ]
            assert reason["weight"] == pytest.approx(whole["score"] - without["score"], abs=1e-4)


def test_a_batch_takes_none(filtering):
    """Refused by name; an empty list is none."""
    requests = [{"items": ["i01"]}, {"items": ["i01"], "boosts": RULES["boosts"]}]
    response = filtering.post("/recommend/batch", {"requests": requests})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/requests/1/boosts", "rules_batch")
    assert filtering.post("/recommend/batch", {"requests": [{"items": ["i01"], "boosts": []}]}).status_code == 200
