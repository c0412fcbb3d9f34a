"""The field `ranker`: the same question to each ranker, for comparisons."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from model.contract.bundle import read_bundle
from model.contract.query import encode_question
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


def test_neighbours_without_a_history_are_popular_items(with_sessions):
    """There is nobody like somebody unknown: a cold start, not degraded."""
    answer = with_sessions.recommend(items=[], ranker="neighbours")
    assert (answer["source"], answer["degraded"]) == ("popular", None)


def test_neighbours_that_take_too_long_are_given_up(with_sessions):
    """Who waits for others' neighbours beyond the deadline gets popular items, and is told why."""
    turn = with_sessions.service.recommender.variants.champion.pipeline._neighbours_turn

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

        def rank_slowly(self, question):
            loop.call_soon_threadsafe(started.set)
            asyncio.run_coroutine_threadsafe(finish.wait(), loop).result(60)
            return original(self, question)

        original = type(model).rank_neighbours
        monkeypatch.setattr(type(model), "rank_neighbours", rank_slowly)
        question = {"items": ["i02"], "ranker": "neighbours", "timeout_ms": 2000}
        slow = asyncio.create_task(with_sessions.http.post("/recommend", json=question))
        await started.wait()
        other = await with_sessions.http.get("/health/live")
        finish.set()
        return other.status_code, (await slow).json()["source"]

    assert with_sessions.run(ask_beside()) == (200, "neighbours")


def test_bundle_without_neighbours_has_no_such_ranker(client):
    """422 that says how a bundle comes by them."""
    response = client.post("/recommend", {"items": ["i01"], "ranker": "neighbours"})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/ranker", "unknown_ranker")
    assert "--neighbours" in error["detail"]


@pytest.mark.parametrize(
    ("given", "code"),
    [("c4n4ry", "unknown_ranker"), ("Model", "unknown_ranker"), ("", "unknown_ranker"), (7, "string_type")],
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


@pytest.mark.parametrize("ranker", ["model", "neighbours", "popular"])
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
    for ranker in ("model", "popular"):
        assert ids.read(client.recommend(user_id=user, ranker=ranker)["recommendation_id"], user) is None
