"""The field `ranker`: the same question to each ranker, for comparisons. Other versions: test_comparisons.py."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from model.contract.bundle import read_bundle
from model.contract.query import encode_question
from model.contract.rules import DECAY, Rules
from model.contract.sessions import Sessions


@pytest.fixture
def with_sessions(make_client, broken_bundle):
    """A service whose bundle has neighbours: sessions of i02, i07, i11; of i02, i04, i12; of i09."""
    sessions = Sessions(  # indexes follow the ids: i01 is the seventh of 20
        item_count=20,
        starts=np.array([0, 3, 6, 7]),
        items=np.array([8, 13, 17, 8, 10, 18, 15], dtype=np.int32),
        moments=np.zeros(3, dtype=np.int64),
    )
    return make_client(bundle=broken_bundle("sessions.npy", sessions.to_bytes()))


@pytest.fixture
def with_rules(make_client, broken_bundle):
    """A service whose bundle has rules: i07 and i11 follow i02, i11 before that i04; nothing follows i09."""
    vocabulary = read_bundle(broken_bundle("", b"")).vocabulary
    followers = {"i02": {"i07": 1.0, "i11": 0.5}, "i04": {"i11": 2.0, "i02": 1.0}}
    rows = [followers.get(item_id, {}) for item_id in vocabulary.item_ids]
    rules = Rules(
        starts=np.append(0, np.cumsum([0, *map(len, rows)])),
        followers=np.array([vocabulary.index_of(item_id) for row in rows for item_id in row], dtype=np.int32),
        weights=np.array([weight for row in rows for weight in row.values()], dtype=np.float32),
    )
    return make_client(bundle=broken_bundle("rules.npy", rules.to_bytes()))


def names(answer):
    """The item ids of an answer."""
    return [item["item_id"] for item in answer["items"]]


def settle(answer):
    """An answer without what differs from one to the next."""
    return {name: value for name, value in answer.items() if name not in ("recommendation_id", "took_ms")}


def test_auto_is_what_comes_without_it(client, user):
    """Named or not, the best ranker answers, in the same words."""
    client.send({"user_id": user, "item_id": "i05"})
    questions: list[dict] = [{"user_id": user}, {"items": ["i01", "i02"], "k": 3}, {"items": []}]
    for question in questions:
        assert settle(client.recommend(**question, ranker="auto")) == settle(client.recommend(**question))


def test_popular_whatever_the_history(client, user, bundle_path):
    """The popular list without what was seen, and nothing degraded."""
    bundle = read_bundle(bundle_path)
    popular = bundle.vocabulary.decode(bundle.rank_popular().tolist())
    client.send({"user_id": user, "item_id": popular[0]})
    answer = client.recommend(user_id=user, items=[popular[2]], ranker="popular", k=4)
    assert (answer["source"], answer["degraded"]) == ("popular", None)
    assert names(answer) == [popular[1], *popular[3:6]]
    assert answer["history"]["length"] == 1
    assert client.recommend(items=["i01"], k=4)["source"] == "model"


def test_neighbours_answer_while_the_model_works(with_sessions, user):
    """As they do in its place: the stored history counts, and all fields do."""
    with_sessions.send({"user_id": user, "item_id": "i02"})
    answer = with_sessions.recommend(user_id=user, items=["i07"], exclude_item_ids=["i04"], k=3, ranker="neighbours")
    assert (answer["source"], answer["degraded"]) == ("neighbours", None)
    model = with_sessions.service.model
    question = encode_question(
        model.vocabulary, history=["i02", "i07"], exclude=["i04"], candidates=None, k=3, exclude_history=True
    )
    expected = model.rank_neighbours(question)
    assert names(answer) == list(expected.item_ids) == ["i11", "i12", "a/b"]
    assert [item["score"] for item in answer["items"]] == list(expected.scores)
    chosen = with_sessions.recommend(items=["i02"], ranker="neighbours", candidate_item_ids=["i09", "i12"], k=5)
    assert names(chosen) == ["i12", "i09"]


def test_rules_answer_for_who_names_them(with_rules, user):
    """By what followed the stored history and the request's items, the newest one most; then by popularity."""
    with_rules.send({"user_id": user, "item_id": "i04"})
    answer = with_rules.recommend(user_id=user, items=["i02"], k=4, ranker="rules")
    assert (answer["source"], answer["degraded"], answer["model"]["variant"]) == ("rules", None, "champion")
    popular = [name for name in names(with_rules.recommend(items=[], k=6)) if name not in ("i02", "i04", "i07", "i11")]
    assert names(answer) == ["i11", "i07", *popular[:2]]
    scores = [item["score"] for item in answer["items"]]
    assert scores[:2] == pytest.approx([0.5 + 2 * DECAY, 1.0])
    assert max(scores[2:]) < 1e-12
    again = with_rules.recommend(items=["i04"], exclude_seen=False, candidate_item_ids=["i02", "i09"], ranker="rules")
    assert names(again) == ["i02", "i09"]
    excluded = with_rules.recommend(items=["i04"], exclude_item_ids=["i11"], k=1, ranker="rules")
    assert names(excluded) == ["i02"]
    assert with_rules.recommend(items=["i04"])["source"] == "model"
    assert with_rules.recommend(items=[], ranker="rules")["source"] == "popular"
    counts = with_rules.counts()
    [answered] = [
        count
        for name, count in counts.items()
        if name.startswith("nextitem_recommendations_total") and '"rules"' in name
    ]
    assert answered == 3


def test_rules_never_stand_in_for_the_model(with_rules, monkeypatch):
    """While it fails popular items do, since the bundle has no neighbours."""

    def fail(_names, _feed):
        raise RuntimeError("CUDA failure 700")

    monkeypatch.setattr(with_rules.service.model.engine, "_session", SimpleNamespace(run=fail))
    answer = with_rules.recommend(items=["i02"])
    assert (answer["source"], answer["degraded"]) == ("popular", "engine_unavailable")
    assert with_rules.recommend(items=["i02"], ranker="rules")["source"] == "rules"


def test_what_can_be_asked_is_listed(with_rules, with_sessions, bundle_path):
    """The words that the bundle has a ranker for, best first, and the version."""
    version = read_bundle(bundle_path).manifest.version
    for client, own in ((with_rules, "rules"), (with_sessions, "neighbours")):
        rankers = client.get("/model").json()["rankers"]
        assert rankers == ["auto", "model", own, "popular", version]
        for ranker in rankers:
            assert client.recommend(items=["i02"], ranker=ranker)["model"]["version"] == version


def test_neighbours_without_a_history_are_popular_items(with_sessions):
    """There is nobody like somebody unknown: a cold start, not degraded."""
    answer = with_sessions.recommend(items=[], ranker="neighbours")
    assert (answer["source"], answer["degraded"]) == ("popular", None)


def test_neighbours_that_take_too_long_are_given_up(with_sessions):
    """Who waits for others' neighbours beyond the deadline gets popular items, and is told why."""
    turn = with_sessions.service.recommender.variants.champion.pipeline._counted_turn

    async def hold_turn():
        async with turn:
            response = await with_sessions.http.post(
                "/recommend", json={"items": ["i02"], "ranker": "neighbours", "timeout_ms": 50}
            )
        return response.json()

    answer = with_sessions.run(hold_turn())
    assert (answer["source"], answer["degraded"]) == ("popular", "deadline")
    assert with_sessions.recommend(items=["i02"], ranker="neighbours")["source"] == "neighbours"


def test_neighbours_leave_the_event_loop_to_others(with_sessions, monkeypatch):
    """They are ranked in a thread: other requests are answered meanwhile."""
    model = with_sessions.service.model
    started, finish = asyncio.Event(), asyncio.Event()

    async def ask_beside():
        loop = asyncio.get_running_loop()

        def rank_slowly(self, counted, question):
            loop.call_soon_threadsafe(started.set)
            asyncio.run_coroutine_threadsafe(finish.wait(), loop).result(60)
            return original(self, counted, question)

        original = type(model).rank_counted
        monkeypatch.setattr(type(model), "rank_counted", rank_slowly)
        question = {"items": ["i02"], "ranker": "neighbours", "timeout_ms": 2000}
        slow = asyncio.create_task(with_sessions.http.post("/recommend", json=question))
        await started.wait()
        other = await with_sessions.http.get("/health/live")
        finish.set()
        return other.status_code, (await slow).json()["source"]

    assert with_sessions.run(ask_beside()) == (200, "neighbours")


@pytest.mark.parametrize("ranker", ["neighbours", "rules"])
def test_bundle_without_what_counts_has_no_such_ranker(client, ranker):
    """422 that says how a bundle comes by it."""
    response = client.post("/recommend", {"items": ["i01"], "ranker": ranker})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/ranker", "unknown_ranker")
    assert f"--{ranker}" in error["detail"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("c4n4ry", "unknown_ranker"),
        ("Model", "unknown_ranker"),
        ("", "unknown_ranker"),
        ("c4n4ry/../", "unknown_ranker"),
        ("c4n4ry" * 11, "unknown_ranker"),
        (7, "string_type"),
        (["model"], "string_type"),
    ],
)
def test_other_names_are_refused(client, given, code):
    """Without a word of what was sent."""
    response = client.post("/recommend", {"items": ["i01"], "ranker": given})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/ranker")
    assert response.json()["errors"][0]["code"] == code
    assert "c4n4ry" not in response.text


def test_model_is_not_replaced_by_neighbours(with_sessions, monkeypatch):
    """Who asks for the model and cannot have it gets popular items: a comparison shows no other's list as its."""

    def fail(_names, _feed):
        raise RuntimeError("CUDA failure 700")

    assert with_sessions.recommend(items=["i02"], ranker="model")["source"] == "model"
    monkeypatch.setattr(with_sessions.service.model.engine, "_session", SimpleNamespace(run=fail))
    answer = with_sessions.recommend(items=["i02"], ranker="model")
    assert (answer["source"], answer["degraded"]) == ("popular", "engine_unavailable")
    assert with_sessions.recommend(items=["i02"])["source"] == "neighbours"
    assert with_sessions.recommend(items=["i02"], ranker="popular")["degraded"] is None


@pytest.mark.parametrize("ranker", ["neighbours", "popular"])
def test_history_that_is_behind_is_waited_for(with_sessions, user, ranker):
    """As for the model: 409 when it does not come, an answer when it does."""
    behind = {"user_id": user, "ranker": ranker, "min_history_version": 1, "timeout_ms": 60}
    assert with_sessions.post("/recommend", behind).status_code == 409
    with_sessions.send({"user_id": user, "item_id": "i02"})
    assert with_sessions.recommend(**behind | {"timeout_ms": 2000})["source"] == ranker


@pytest.mark.parametrize("ranker", ["model", "neighbours", "rules", "popular", "20261121T101500-tiny"])
def test_batches_take_none(client, ranker):
    """Two hundred lists of neighbours at once would keep everybody waiting."""
    response = client.post("/recommend/batch", {"requests": [{"items": ["i01"]}, {"items": ["i01"], "ranker": ranker}]})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/requests/1/ranker", "ranker_batch")
    assert client.post("/recommend/batch", {"requests": [{"items": ["i01"], "ranker": "auto"}]}).status_code == 200


def test_comparisons_count_for_no_trial(client, user):
    """No event can claim such an answer: the judge must not take another ranker's list for the model's."""
    ids = client.service.recommender.variants.ids
    client.send({"user_id": user, "item_id": "i05"})
    assert ids.read(client.recommend(user_id=user)["recommendation_id"], user) is not None
    for ranker in ("model", "popular", client.service.model.manifest.version):
        assert ids.read(client.recommend(user_id=user, ranker=ranker)["recommendation_id"], user) is None
