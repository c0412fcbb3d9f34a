"""Every request is answered in time, and no work is done for answers that would come too late."""

import asyncio
import threading
import time

import pytest

from service.errors import StoreUnavailable
from service.inference.model import LiveModel


class Stall:
    """Once begun, runs of the model do not come back until they are released; it remembers what was asked."""

    def __init__(self, monkeypatch):
        self.asked = []
        self.begun, self.released = threading.Event(), threading.Event()
        self._patch = monkeypatch

    def begin(self):
        """The model stalls from now on."""
        rank = LiveModel.rank

        def rank_slowly(model, questions):
            self.asked += [len(question.history) for question in questions]
            self.begun.set()
            self.released.wait(30)
            return rank(model, questions)

        self._patch.setattr(LiveModel, "rank", rank_slowly)


@pytest.fixture
def stall(monkeypatch):
    """A stalled model, which is released after the test at the latest."""
    stall = Stall(monkeypatch)
    yield stall
    stall.released.set()


async def until(holds):
    """Wait for what has no event."""
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came about")


def count_deadlines(client):
    """How many answers the deadline has cut short."""
    return client.counts()['nextitem_fallbacks_total{reason="deadline"}']


def test_stalled_model_does_not_hold_the_answer(make_client, ask_in_time, user, stall):
    """Popular items without the seen ones, within the deadline, and the stalled run is the only one that was begun."""
    client = make_client()
    stall.begin()
    client.send({"user_id": user, "item_id": "a/b"})
    answers = ask_in_time(lambda: client.recommend(user_id=user, timeout_ms=150, k=3), within_s=0.15)
    assert {(answer["source"], answer["degraded"]) for answer in answers} == {("popular", "deadline")}
    assert count_deadlines(client) == len(answers)
    stall.released.set()
    assert client.recommend(user_id=user)["source"] == "model"
    assert stall.asked == [1, 1]  # the one that stalled, and the last


def test_popular_items_of_a_late_answer_know_the_history(make_client, user, stall):
    """What was read before time ran out counts: nothing seen is answered, and the version stands there."""
    client = make_client()
    stall.begin()
    client.send({"user_id": user, "item_id": "a/b"})
    answer = client.recommend(user_id=user, timeout_ms=200, min_history_version=1)
    assert (answer["degraded"], answer["history"]["version"]) == ("deadline", 1)
    assert "a/b" not in [item["item_id"] for item in answer["items"]]
    assert stall.begun.is_set()


def test_who_leaves_while_the_engine_is_busy_is_not_computed_for(make_client, stall):
    """Their batch is under way already, and still the model does not run for them."""
    client = make_client(max_batch=1)
    stall.begin()

    async def scenario():
        first = asyncio.create_task(client.http.post("/recommend", json={"items": ["i01"], "timeout_ms": 2000}))
        await asyncio.to_thread(stall.begun.wait, 10)
        second = asyncio.create_task(client.http.post("/recommend", json={"items": ["i01", "i02"], "timeout_ms": 2000}))
        await until(lambda: not client.service.recommender.variants.champion.runner._thread._jobs.empty())
        second.cancel()
        await asyncio.sleep(0)
        stall.released.set()
        third = await client.http.post("/recommend", json={"items": ["i01", "i02", "i03"], "timeout_ms": 2000})
        return await first, third

    first, third = client.run(scenario())
    assert [answer.json()["source"] for answer in (first, third)] == ["model", "model"]
    assert stall.asked == [1, 3]


def test_late_before_it_begins_is_answered_without_any_work(make_client, user, stall):
    """A body that takes longer than the whole deadline: neither the store nor the model is asked."""
    client = make_client()
    stall.begin()

    async def send_slowly():
        yield f'{{"user_id":"{user}","timeout_ms":50,'.encode()
        await asyncio.sleep(0.1)
        yield b'"items":["i01"]}'

    response = client.request("POST", "/recommend", content=send_slowly(), headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["degraded"]) == (200, "deadline")
    counts = client.counts()
    assert counts['nextitem_store_duration_seconds_count{op="read"}'] == 0
    assert stall.asked == []
    assert counts['nextitem_stage_duration_seconds_count{stage="queue"}'] == 1


def test_store_has_a_share_of_what_is_left(make_client, user, monkeypatch):
    """A read may take two fifths of the time, so that enough remains to answer without it."""
    client, given = make_client(), []
    read_many = client.service.store.read_many

    async def read_and_tell(user_ids, *, within_s):
        given.append(within_s)
        return await read_many(user_ids, within_s=within_s)

    monkeypatch.setattr(client.service.store, "read_many", read_and_tell)
    for timeout_ms in (10, 300, 2000):
        client.recommend(user_id=user, timeout_ms=timeout_ms)
    shares = [within_s / limit_s for within_s, limit_s in zip(given, (0.01, 0.3, 2.0)[-len(given) :], strict=True)]
    assert len(shares) >= 2  # with 10 ms, time may have run out before
    assert all(0 < share <= 0.4 for share in shares)
    assert shares[-1] > 0.3


def test_read_without_time_is_not_the_store_s_fault(make_client, user, monkeypatch):
    """A store that is asked a moment before the deadline is not called unavailable."""
    client = make_client()

    async def never(_user_ids, *, within_s):
        await asyncio.sleep(within_s)
        raise StoreUnavailable(kind="timeout")

    monkeypatch.setattr(client.service.store, "read_many", never)
    answer = client.recommend(user_id=user, timeout_ms=100)
    assert (answer["source"], answer["degraded"], answer["history"]) == ("popular", "deadline", None)
    assert client.recommend(user_id=user, timeout_ms=2000)["degraded"] == "store_unavailable"


def test_wait_for_a_version_ends_with_the_deadline(make_client, ask_in_time, user):
    """409 when the request's time is nearly over."""
    client = make_client()
    ask, began_s = {"user_id": user, "min_history_version": 1, "timeout_ms": 600}, time.perf_counter()
    answers = ask_in_time(lambda: client.post("/recommend", ask), within_s=0.6)
    assert {answer.status_code for answer in answers} == {409}
    assert time.perf_counter() - began_s > 0.5 * len(answers)


def test_who_waits_for_a_version_leaves_room_to_others(make_client, user):
    """So many may wait: the next gets its 409 at once, and a question without a version its answer."""
    client = make_client(max_requests=8, max_queue=4)
    ask = {"user_id": user, "min_history_version": 1, "timeout_ms": 2000}

    async def scenario():
        waiting = [asyncio.create_task(client.http.post("/recommend", json=ask)) for _ in range(2)]
        await until(lambda: client.service.recommender._version_waiters == 2)
        refused = [await client.http.post("/recommend", json=ask)]
        refused.append(await client.http.post("/recommend/batch", json={"requests": [{"items": ["i01"]}, ask]}))
        lone = await client.http.post("/recommend", json={"items": ["i01"], "timeout_ms": 2000})
        assert not any(task.done() for task in waiting)
        await client.http.post("/events", json={"user_id": user, "item_id": "i01"})
        return await asyncio.gather(*waiting), refused, lone

    waited, refused, lone = client.run(scenario())
    assert [answer.status_code for answer in refused] == [409, 409]
    assert [answer.json()["source"] for answer in (*waited, lone)] == ["model"] * 3
    assert client.counts()['nextitem_shed_total{reason="waiters_full"}'] == 2
    assert client.service.recommender._version_waiters == 0


def test_version_that_nobody_could_look_up_is_a_conflict(make_client, user, stall):
    """Late or not, an answer from an unknown history is not what was asked for."""
    client = make_client(max_batch=1)
    stall.begin()

    async def scenario():
        busy = [client.http.post("/recommend", json={"items": ["i01"], "timeout_ms": 300}) for _ in range(3)]
        asked = client.http.post("/recommend", json={"user_id": user, "min_history_version": 0, "timeout_ms": 100})
        *_, answer = await asyncio.gather(*busy, asked)
        return answer

    assert client.run(scenario()).status_code == 409


def test_model_that_is_stuck_is_not_waited_for(make_client, user, stall):
    """A run that nobody can wait for any more counts as no engine: answers are immediate, until it comes back."""
    client = make_client()
    client.service.recommender.variants.champion.runner.stuck_after_s = 0.1
    stall.begin()
    client.send({"user_id": user, "item_id": "a/b"})
    assert client.recommend(user_id=user, timeout_ms=150)["degraded"] == "deadline"
    time.sleep(0.1)
    answers = [client.recommend(user_id=user, timeout_ms=2000) for _ in range(4)]
    assert {answer["degraded"] for answer in answers} == {"engine_unavailable"}
    assert min(answer["took_ms"] for answer in answers) < 1000  # of the 2000 that they had
    assert "a/b" not in [item["item_id"] for item in answers[0]["items"]]
    assert client.get("/health/ready").json() == {"status": "degraded", "reasons": ["engine_unavailable"]}
    stall.released.set()
    while client.service.recommender.engine_fails:
        time.sleep(0.001)
    assert client.recommend(user_id=user)["source"] == "model"
    assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}


def test_model_that_is_stuck_does_not_keep_the_service_from_ending(make_client, stall):
    """Closing leaves the run behind, after the time that a request may take."""
    client = make_client()
    client.service.recommender.variants.champion.runner.stuck_after_s = 0.1
    stall.begin()
    assert client.recommend(items=["i01"], timeout_ms=50)["degraded"] == "deadline"
    client.run(client.service.recommender.close())
    assert not stall.released.is_set()
