"""The field `filter`: answers hold items that match alone, whoever ranks them and whatever else the request asks."""

import asyncio
import json
import shutil
import time
from types import SimpleNamespace

import orjson
import pytest

from benchmarks.harness.bundles import rename_items, seal
from model.contract.attributes import gather_attributes
from model.contract.bundle import ATTRIBUTES, MANIFEST, read_bundle
from model.contract.deployment.changes import promote, set_candidate
from model.contract.deployment.document import read_deployment
from model.contract.deployment.writer import change_deployment
from service.api.requests import RecommendRequest
from service.deployment import watcher
from service.deployment.probe import Verdict
from service.errors import Invalid
from service.ranking import restrictions
from service.ranking.pending import PendingRequest
from service.recommend.assignment import assign
from service.telemetry.stage_timer import StageTimer

CANDIDATE = "20261122T101500-trial"
DRAMA = {"field": "genres", "in": ["Drama"]}
FILTERS = {
    "string in a list": (DRAMA, lambda known: "Drama" in known["genres"]),
    "numbers": ({"field": "year", "gte": 1995, "lt": 2004}, lambda known: 1995 <= known.get("year", 0) < 2004),
    "a list of numbers": ({"field": "sizes", "lte": 4}, lambda known: min(known.get("sizes", [9])) <= 4),
    "truth": ({"field": "new", "in": [True]}, lambda known: known["new"]),
    "absence": ({"field": "year", "exists": False}, lambda known: "year" not in known),
    "one title": ({"field": "title", "in": ["Title 7", "no such title"]}, lambda known: known["title"] == "Title 7"),
    "not": ({"not": {"field": "title", "in": ["Title 7"]}}, lambda known: known["title"] != "Title 7"),
    "all": (
        {"all": [DRAMA, {"any": [{"field": "year", "gt": 2000}, {"not": {"field": "sizes", "exists": False}}]}]},
        lambda known: "Drama" in known["genres"] and (known.get("year", 0) > 2000 or "sizes" in known),
    ),
    "nothing": ({"field": "genres", "in": ["c4n4ry"]}, lambda _known: False),
}


def names(answer):
    """The item ids of an answer."""
    return [item["item_id"] for item in answer["items"]]


def errors_of(response):
    """Pointers and codes of a 422, which holds nothing that was sent."""
    assert response.status_code == 422, response.text
    assert "c4n4ry" not in response.text
    assert len(response.content) <= 2048
    return [(error["pointer"], error["code"]) for error in response.json()["errors"]]


@pytest.mark.parametrize("ranker", ["auto", "model", "neighbours", "rules", "popular"])
@pytest.mark.parametrize("name", FILTERS)
def test_answers_are_the_unfiltered_list_without_the_rest(filtering, known, name, ranker):
    """All items that match, in their order and with their scores, and how many of the catalogue do."""
    document, matches = FILTERS[name]
    question = {"items": ["i01", "i02"], "k": 20, "exclude_seen": False, "ranker": ranker}
    whole = filtering.recommend(**question)
    answer = filtering.recommend(**question, filter=document)
    assert answer["allowed"] == sum(map(matches, known.values()))
    assert names(answer) == [item_id for item_id in names(whole) if matches(known[item_id])]
    assert answer["count"] == answer["allowed"]
    assert (answer["source"], answer["degraded"]) == (whole["source"], None)
    scores = {item["item_id"]: item["score"] for item in whole["items"]}
    assert [item["score"] for item in answer["items"]] == pytest.approx(
        [scores[item_id] for item_id in names(answer)], abs=1e-4
    )


def test_k_is_filled(filtering, known):
    """Ten that match are found, however many better ones do not."""
    document = {"not": {"field": "title", "in": [f"Title {number}" for number in range(8)]}}
    answer = filtering.recommend(items=["i01"], k=10, filter=document)
    assert answer["count"] == 10
    assert all(int(known[item_id]["title"].split()[1]) >= 8 for item_id in names(answer))


def test_cold_starts_are_filtered(filtering, known, user):
    """Popular items for somebody unknown match, too."""
    answer = filtering.recommend(user_id=user, k=3, filter=DRAMA)
    assert (answer["source"], answer["count"], answer["allowed"]) == ("popular", 3, 10)
    assert all("Drama" in known[item_id]["genres"] for item_id in names(answer))


def test_it_combines_with_what_else_a_request_names(filtering, known):
    """Candidates, exclusions, seen items, metadata and reasons."""
    answer = filtering.recommend(
        items=["i01", "i02"],
        candidate_item_ids=["i01", "i03", "i04", "i05", "i06", "i07", "nobody"],
        exclude_item_ids=["i05"],
        filter=DRAMA,
        return_metadata=["genres"],
        explain=True,
    )
    expected = {item_id for item_id in ("i03", "i04", "i06", "i07") if "Drama" in known[item_id]["genres"]}
    assert set(names(answer)) == expected
    assert expected
    assert answer["allowed"] == 10
    assert answer["explained"] == 2
    assert [item["metadata"] for item in answer["items"]] == [
        {"genres": known[item_id]["genres"]} for item_id in names(answer)
    ]
    plain = filtering.recommend(items=["i01", "i02"], exclude_item_ids=["i05"], k=20, explain=True)
    reasons = {item["item_id"]: item["reasons"] for item in plain["items"]}
    assert [
        [(reason["item_id"], pytest.approx(reason["weight"], abs=1e-4)) for reason in item["reasons"]]
        for item in answer["items"]
    ] == [[(reason["item_id"], reason["weight"]) for reason in reasons[item_id]] for item_id in names(answer)]


@pytest.mark.parametrize("absent", [{}, {"filter": None}], ids=["absent", "null"])
def test_plain_answers_are_as_before(filtering, absent):
    """Byte for byte what the fields of an answer make, without the new one."""
    response = filtering.post("/recommend", {"items": ["i01"], "k": 5, "timeout_ms": 2000, **absent})
    assert response.content == orjson.dumps(response.json())
    assert b"allowed" not in response.content


def test_unknown_fields_are_told_the_known_ones(filtering, client):
    """Those of the bundle that answers; a bundle without any says how it comes by them."""
    document = {"items": ["i01"], "filter": {"all": [DRAMA, {"not": {"field": "c4n4ry", "gt": 5}}]}}
    response = filtering.post("/recommend", document)
    assert errors_of(response) == [("/filter/all/1/not/field", "unknown_field")]
    assert "genres, new, sizes, title, year" in response.json()["errors"][0]["detail"]
    response = client.post("/recommend", document)
    assert errors_of(response) == [
        ("/filter/all/0/field", "unknown_field"),
        ("/filter/all/1/not/field", "unknown_field"),
    ]
    assert "--items" in response.json()["errors"][0]["detail"]


@pytest.mark.parametrize("ranker", ["auto", "neighbours", "rules", "popular"])
def test_conditions_that_do_not_fit_their_field_are_refused(filtering, ranker, user):
    """Whoever ranks, and with a stored history."""
    filtering.send({"user_id": user, "item_id": "i01"})
    document = {"user_id": user, "ranker": ranker, "filter": {"any": [DRAMA, {"field": "year", "in": ["c4n4ry"]}]}}
    assert errors_of(filtering.post("/recommend", document)) == [("/filter/any/1/in", "wrong_type")]


def test_each_request_of_a_batch_has_its_own(filtering, known, user):
    """The same answers as one by one, plain ones between them."""
    filtering.send({"user_id": user, "item_id": "i01"})
    filters = [document for document, _ in FILTERS.values()]
    requests = [{"user_id": user, "k": 20, "filter": document} for document in [*filters, None]]
    requests = [{"timeout_ms": 2000, **request} for request in requests * 3]
    answers = filtering.post("/recommend/batch", {"requests": requests}).json()["responses"]
    for request, answer in zip(requests, answers, strict=True):
        alone = filtering.recommend(**request)
        assert (names(answer), answer.get("allowed")) == (names(alone), alone.get("allowed"))
    assert [answer.get("allowed") for answer in answers[: len(filters)]] == [
        sum(map(matches, known.values())) for _, matches in FILTERS.values()
    ]


def test_errors_of_a_batch_name_the_request(filtering):
    """Those of its form, of all requests; those of the model's fields, of the first request that has some."""
    wrong = {"items": ["i01"], "filter": {"field": "c4n4ry", "exists": True}}
    batch = {"requests": [{"items": ["i01"], "filter": DRAMA}, {"items": []}, wrong, wrong]}
    assert errors_of(filtering.post("/recommend/batch", batch)) == [("/requests/2/filter/field", "unknown_field")]
    formless = {"items": ["i01"], "filter": {"all": [DRAMA, {"field": "year", "gt": "c4n4ry"}]}}
    batch = {"requests": [{"items": []}, formless, formless, wrong]}
    assert errors_of(filtering.post("/recommend/batch", batch)) == [
        (f"/requests/{number}/filter/all/1/gt", "wrong_type") for number in (1, 2)
    ]
    assert filtering.post("/recommend/batch", {"requests": [{"items": ["i01"], "filter": DRAMA}]}).status_code == 200


@pytest.mark.parametrize("reason", ["deadline", "overloaded", "engine_unavailable"])
def test_degraded_answers_are_filtered(filtering, known, reason):
    """What is answered at once, because nothing better is there, matches too; and so are its errors."""
    pipeline = filtering.service.recommender.variants.champion.pipeline

    def ask(document):
        request = RecommendRequest.model_validate({"items": ["i01", "i02"], "filter": document})
        return pipeline.answer_degraded(PendingRequest(request, StageTimer()), reason)

    answer = filtering.run(ask(DRAMA))
    assert (answer["source"], answer["degraded"]) == (
        "neighbours" if reason == "engine_unavailable" else "popular",
        reason,
    )
    assert answer["allowed"] == 10
    assert len(names(answer)) == 10 - sum("Drama" in known[item_id]["genres"] for item_id in ("i01", "i02"))
    assert all("Drama" in known[item_id]["genres"] for item_id in names(answer))
    with pytest.raises(Invalid) as refused:
        filtering.run(ask({"field": "c4n4ry", "exists": True}))
    assert [error.code for error in refused.value.field_errors] == ["unknown_field"]


@pytest.mark.parametrize("batch", [False, True], ids=["alone", "in a batch"])
def test_failing_engine_leaves_filters_in_force(make_client, filterable_bundle, known, monkeypatch, batch):
    """Neighbours in its place match; an unknown field is refused as ever."""
    client = make_client(bundle=filterable_bundle)

    def fail(*_given):
        raise RuntimeError("CUDA failure 700")

    monkeypatch.setattr(client.service.model.engine, "_session", SimpleNamespace(run=fail))

    def ask(document):
        question = {"items": ["i01"], "k": 20, "timeout_ms": 2000, "filter": document}
        if batch:
            return client.post("/recommend/batch", {"requests": [question]})
        return client.post("/recommend", question)

    response = ask(DRAMA)
    answer = response.json()["responses"][0] if batch else response.json()
    assert (answer["source"], answer["degraded"]) == ("neighbours", "engine_unavailable")
    assert set(names(answer)) == {item_id for item_id in known if "Drama" in known[item_id]["genres"]} - {"i01"}
    [(pointer, code)] = errors_of(ask({"field": "c4n4ry", "exists": True}))
    assert (pointer, code) == ("/requests/0/filter/field" if batch else "/filter/field", "unknown_field")


def test_filters_are_counted(filtering):
    """By how the model finds what they allow: of so few items those that match, if not all do; refused ones are not."""

    def count(plan):
        return filtering.counts()[f'nextitem_filtered_total{{plan="{plan}"}}']

    before = {plan: count(plan) for plan in ("none", "candidates", "exclude", "mask")}
    filtering.recommend(items=["i01"], filter=DRAMA)
    filtering.recommend(items=[], filter=DRAMA, ranker="popular")
    filtering.recommend(items=["i01"], filter={"field": "title", "exists": True})
    filtering.post("/recommend", {"items": ["i01"], "filter": {"field": "c4n4ry", "exists": True}})
    filtering.recommend(items=["i01"])
    assert {plan: count(plan) - counted for plan, counted in before.items()} == {
        "none": 1,
        "candidates": 2,
        "exclude": 0,
        "mask": 0,
    }


def test_long_work_goes_beside_the_loop(make_client, filterable_bundle, known, monkeypatch):
    """The answers are the same, at once and in batches."""
    monkeypatch.setattr(restrictions, "AT_ONCE_NS", -1)
    client = make_client(bundle=filterable_bundle)
    for document, matches in FILTERS.values():
        answer = client.recommend(items=["i01"], k=20, exclude_seen=False, filter=document)
        assert set(names(answer)) == {item_id for item_id in known if matches(known[item_id])}
    question = {"items": ["i01"], "k": 20, "timeout_ms": 2000}
    requests = [question | {"filter": {"field": "year", "gte": 1990 + number}} for number in range(40)]
    answers = client.post("/recommend/batch", {"requests": requests}).json()["responses"]
    assert [answer["allowed"] for answer in answers] == [
        sum(item.get("year", 0) >= 1990 + number for item in known.values()) for number in range(40)
    ]


@pytest.fixture
def follow(make_client, filterable_bundle, tmp_path, monkeypatch):
    """A service of a champion and a candidate in canary, whose bundle's columns are given by name; and its folder."""
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, ""))
    root = shutil.copytree(filterable_bundle, tmp_path / "bundles")

    def follow(*columns, share=0.5):
        folder = rename_items(filterable_bundle, root, CANDIDATE, prefix="")
        vocabulary = read_bundle(root).vocabulary
        known = {item_id: dict.fromkeys(columns, number) for number, item_id in enumerate(vocabulary.item_ids)}
        names = json.loads((folder / MANIFEST).read_bytes())["files"]
        if columns:
            (folder / ATTRIBUTES).write_bytes(gather_attributes(vocabulary, known).to_bytes())
        seal(folder, files={name: None for name in names if columns or name != ATTRIBUTES})
        client = make_client(bundle=root, follow_s=0.05)
        deploy(root, set_candidate(CANDIDATE, mode="canary", share=share))
        wait_for(client, lambda model: model["candidate"] and model["candidate"]["in_use"])
        return client, root

    return follow


def deploy(root, change):
    """Change who answers."""
    change_deployment(root, change, action="test", by="test", force=True)


def wait_for(client, holds):
    """Wait until GET /model is so."""
    deadline = time.monotonic() + 60
    while not holds(model := client.get("/model").json()):
        assert time.monotonic() < deadline, model
        client.run(asyncio.sleep(0.02))


def list_users(root):
    """Users of the champion and as many of the candidate."""
    now = read_deployment(root)
    users: dict[str, list[str]] = {"champion": [], "candidate": []}
    for number in range(100):
        user = f"user-{number}"
        users[assign(user, salt=now.salt, share=now.share)].append(user)
    assert min(map(len, users.values())) >= 5
    return {variant: assigned[:5] for variant, assigned in users.items()}


def count_fallbacks(client):
    """Answers by the champion for want of a field."""
    return client.counts().get('nextitem_variant_fallbacks_total{reason="unpublished"}', 0)


def test_champion_answers_where_the_candidate_lacks_the_field(follow):
    """A candidate on trial fails nobody: its users get the champion's answer, alone and in a batch; forced, a 422."""
    client, root = follow()
    users = list_users(root)
    for user in (*users["champion"], *users["candidate"]):
        answer = client.recommend(user_id=user, items=["i01"], filter=DRAMA)
        assert (answer["model"]["variant"], answer["allowed"], answer["degraded"]) == ("champion", 10, None)
    assert count_fallbacks(client) == 5
    requests = [{"user_id": user, "items": ["i01"], "timeout_ms": 2000} for user in users["candidate"]]
    mixed = [request | {"filter": DRAMA} if number % 2 else request for number, request in enumerate(requests)]
    answers = client.post("/recommend/batch", {"requests": mixed}).json()["responses"]
    assert [answer["model"]["variant"] for answer in answers] == ["candidate", "champion"] * 2 + ["candidate"]
    assert [answer.get("allowed") for answer in answers] == [None, 10] * 2 + [None]
    assert count_fallbacks(client) == 7
    forced = {"items": ["i01"], "variant": "candidate", "filter": DRAMA}
    assert errors_of(client.post("/recommend", forced)) == [("/filter/field", "unknown_field")]
    assert errors_of(client.post("/recommend/batch", {"requests": [requests[0], forced]})) == [
        ("/requests/1/filter/field", "unknown_field")
    ]
    unknown = {"user_id": users["candidate"][0], "items": [], "filter": {"field": "c4n4ry", "exists": True}}
    response = client.post("/recommend", unknown)
    assert errors_of(response) == [("/filter/field", "unknown_field")]
    assert "genres" in response.json()["errors"][0]["detail"]
    assert not client.service.recommender.variants.candidate.monitor.out_of_use


def test_fields_are_those_of_the_model_that_answers(follow):
    """A field of the candidate alone is its users' only, until it is the champion; then the old ones are gone."""
    client, root = follow("stars")
    users = list_users(root)
    stars = {"field": "stars", "gte": 15}
    for user in users["candidate"]:
        answer = client.recommend(user_id=user, items=["i01"], filter=stars)
        assert (answer["model"]["variant"], answer["allowed"]) == ("candidate", 5)
    ask = {"user_id": users["champion"][0], "items": ["i01"], "filter": stars}
    assert errors_of(client.post("/recommend", ask)) == [("/filter/field", "unknown_field")]
    deploy(root, promote())
    wait_for(client, lambda model: model["version"] == CANDIDATE)
    assert client.recommend(**ask)["allowed"] == 5
    assert errors_of(client.post("/recommend", ask | {"filter": DRAMA})) == [("/filter/field", "unknown_field")]
