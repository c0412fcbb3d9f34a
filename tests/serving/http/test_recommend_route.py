"""POST /recommend: where answers come from and what is left out of them."""

import asyncio
import time

import numpy as np
import pytest

from model.contract.bundle import read_bundle


@pytest.fixture(scope="module")
def bundle(bundle_path):
    """The tiny bundle's content."""
    return read_bundle(bundle_path)


@pytest.fixture(scope="module")
def popular(bundle):
    """Item ids by falling count."""
    return bundle.vocabulary.decode(bundle.rank_popular().tolist())


def names(answer):
    """The item ids of an answer."""
    return [item["item_id"] for item in answer["items"]]


def test_cold_start_is_popular_and_not_degraded(client, user, popular, bundle):
    """An unknown user gets the most popular items, with their counts as scores."""
    answer = client.recommend(user_id=user, k=5)
    assert (answer["source"], answer["degraded"], answer["user_id"]) == ("popular", None, user)
    assert names(answer) == popular[:5]
    assert [item["score"] for item in answer["items"]] == sorted(bundle.counts.tolist(), reverse=True)[:5]
    assert answer["history"] == {"version": 0, "length": 0, "last_event_at": None}


def test_event_is_in_the_next_answer(client, user):
    """What was acknowledged counts at once: the model answers, and the item is not answered again."""
    receipt = client.send({"user_id": user, "item_id": "i05", "timestamp": "2026-01-02T03:04:05.678Z"})
    answer = client.recommend(user_id=user, k=20)
    assert receipt["history"] == {user: 1}
    assert (answer["source"], answer["degraded"]) == ("model", None)
    assert "i05" not in names(answer)
    assert answer["history"] == {"version": 1, "length": 1, "last_event_at": "2026-01-02T03:04:05.678Z"}


def test_answers_have_the_shape_of_the_contract(client, user):
    """Every field of the contract is there, and ranks count from one."""
    answer = client.recommend(user_id=user, items=["i01", "i02"], k=3)
    assert set(answer) == {
        "recommendation_id",
        "user_id",
        "items",
        "count",
        "requested",
        "source",
        "degraded",
        "model",
        "history",
        "unknown_item_ids",
        "took_ms",
    }
    assert [item["rank"] for item in answer["items"]] == [1, 2, 3]
    assert (answer["count"], answer["requested"]) == (3, 3)
    assert answer["model"] == {"name": "tiny", "version": "20261121T101500-tiny", "variant": "champion"}
    assert 0 < answer["took_ms"] < 10_000
    assert answer["recommendation_id"] != client.recommend(user_id=user)["recommendation_id"]


def test_items_alone_answer_as_the_trainer_did(client, bundle):
    """The golden examples come out over HTTP as they went in."""
    for example in bundle.golden:
        if not example.items:
            continue
        answer = client.recommend(
            items=list(example.items),
            exclude_item_ids=list(example.exclude),
            candidate_item_ids=list(example.candidates) or None,
            exclude_seen=False,
            k=example.k,
        )
        assert names(answer) == list(example.expected_items)
        assert [item["score"] for item in answer["items"]] == pytest.approx(example.expected_scores, abs=1e-5)
        assert (answer["user_id"], answer["history"]) == (None, None)


def test_nothing_of_the_given_items_is_stored(client, user):
    """Items of a request follow the stored history for that answer only."""
    client.send({"user_id": user, "item_id": "i01"})
    answer = client.recommend(user_id=user, items=["i02"], k=20)
    same = client.recommend(items=["i01", "i02"], k=20)
    assert answer["items"] == same["items"]
    assert answer["history"]["length"] == 1
    assert client.get(f"/users/{user}/history").json()["version"] == 1


def test_order_of_the_history_counts(client):
    """The same items in another order give other scores."""
    forth = client.recommend(items=["i01", "i02", "i03"], k=3)
    back = client.recommend(items=["i03", "i02", "i01"], k=3)
    assert [item["score"] for item in forth["items"]] != [item["score"] for item in back["items"]]


def test_seen_items_beyond_the_window_are_excluded(client, user, bundle):
    """An item older than the model's eight tokens is still not answered, unless seen ones are wanted."""
    seen = [f"i{number:02d}" for number in range(1, 13)]
    client.send(*({"user_id": user, "item_id": item, "timestamp": 10**12 + at} for at, item in enumerate(seen)))
    assert len(seen) > bundle.manifest.max_length
    assert not set(seen) & set(names(client.recommend(user_id=user, k=20)))
    assert set(seen) <= set(names(client.recommend(user_id=user, k=20, exclude_seen=False)))


@pytest.mark.parametrize("history", [[], ["i01"]], ids=["popular", "model"])
def test_k_is_filled_in_spite_of_exclusions(client, history):
    """Exclusion and candidates apply before the cut at k, in the model's answers and in popular ones."""
    excluded = ["i02", "i12", "a/b", "nobody-knows-me", "i02"]
    answer = client.recommend(items=history, exclude_item_ids=excluded, k=12)
    assert answer["count"] == 12
    assert not set(excluded) & set(names(answer))
    candidates = ["i03", "i04", "i05", "i05", "i02"]
    answer = client.recommend(items=history, exclude_item_ids=excluded, candidate_item_ids=candidates, k=12)
    assert sorted(names(answer)) == ["i03", "i04", "i05"]


@pytest.mark.parametrize("history", [[], ["i01"]], ids=["popular", "model"])
def test_unknown_candidates_leave_nothing(client, history):
    """Candidates that the model does not know restrict all the same, and are named in the answer."""
    answer = client.recommend(items=history, candidate_item_ids=["zz", "yy", "zz"])
    assert (answer["items"], answer["count"], answer["unknown_item_ids"]) == ([], 0, ["zz", "yy"])


def test_more_than_the_catalogue_is_answered_with_all_of_it(client):
    """A `k` beyond the catalogue gives every item that is left, in order of score."""
    answer = client.recommend(items=["i01"], k=500)
    assert (answer["count"], answer["requested"]) == (19, 500)
    assert np.all(np.diff([item["score"] for item in answer["items"]]) <= 0)


def test_equal_scores_are_ordered_by_item_id(client):
    """The bundle's last two items are the same to the model: the lower id comes first."""
    answer = client.recommend(items=["i01"], k=20)
    places = {item["item_id"]: (item["rank"], item["score"]) for item in answer["items"]}
    first, second = places["x/history"], places["{07}:*"]
    assert first[1] == second[1]
    assert second[0] == first[0] + 1


def test_unknown_items_are_named_once_and_skipped(client):
    """Unknown ids of the request come back in order, each once, and change nothing else."""
    answer = client.recommend(items=["new2", "i01", "new1", "new2"], candidate_item_ids=["i02", "new1", "new3"], k=5)
    assert answer["unknown_item_ids"] == ["new2", "new1", "new3"]
    assert answer["items"] == client.recommend(items=["i01"], candidate_item_ids=["i02"], k=5)["items"]


def test_only_unknown_items_are_a_cold_start(client, user):
    """A history without one known item is answered by popular items, not degraded."""
    client.send({"user_id": user, "item_id": "never-trained"})
    answer = client.recommend(user_id=user)
    assert (answer["source"], answer["degraded"], answer["history"]["length"]) == ("popular", None, 1)
    assert answer["unknown_item_ids"] == []


@pytest.mark.parametrize(
    "item_id", ["a/b", "__proto__", "constructor", "100%", "%2F", "{07}:*", '<script>"&', "x/history"]
)
def test_odd_item_ids_are_ids_like_any(client, user, item_id):
    """No punctuation has a meaning of its own, in events, histories or answers."""
    client.send({"user_id": user, "item_id": item_id})
    assert item_id not in names(client.recommend(user_id=user, k=20))
    assert names(client.recommend(items=["i01"], candidate_item_ids=[item_id])) == [item_id]


def test_history_as_new_as_asked_for_is_answered(client, user):
    """The version that /events gave is met at once."""
    version = client.send({"user_id": user, "item_id": "i01"}, {"user_id": user, "item_id": "i02"})["history"][user]
    answer = client.recommend(user_id=user, min_history_version=version)
    assert answer["history"]["version"] == version == 2


def test_history_that_stays_behind_is_a_conflict(client, user):
    """409 after about 300 ms."""
    started = time.perf_counter()
    response = client.post("/recommend", {"user_id": user, "min_history_version": 7})
    took = time.perf_counter() - started
    assert (response.status_code, response.json()["type"]) == (409, "urn:nextitem:problem:history-version")
    assert 0.2 < took < 10


def test_history_that_catches_up_in_time_is_answered(client, user):
    """An event that arrives while the request waits lets it through."""

    async def both():
        waiting = asyncio.create_task(client.http.post("/recommend", json={"user_id": user, "min_history_version": 1}))
        await asyncio.sleep(0.05)
        await client.http.post("/events", json={"user_id": user, "item_id": "i01"})
        return await waiting

    response = client.run(both())
    assert (response.status_code, response.json()["history"]["version"]) == (200, 1)
