"""The Lua script against a plain Python model of it, under random requests, on both servers.

FUZZ_TIMES=20, as `make fuzz` sets it, tries twenty times as many.
"""

import asyncio
import json
import os
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.store.connection import connect
from service.store.event import make_event
from service.store.history import HistoryStore
from service.store.records import Outcome
from service.store.redis_keys import name_keys

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
BASE_MS = 1_763_719_498_000
KEEP_ALL = 10**9


@dataclass
class UserModel:
    """What the store should hold of one user: the rules of append.lua in lists and a dict."""

    history: list = field(default_factory=list)
    version: int = 0
    marks: dict = field(default_factory=dict)
    order: list = field(default_factory=list)
    log: list = field(default_factory=list)

    def append(self, event, *, history_length):
        """Store one event."""
        if event.event_id in self.marks:
            return Outcome.DUPLICATE if self.marks[event.event_id] == event.digest else Outcome.CONFLICT
        outcome = Outcome.ACCEPTED
        full = len(self.history) == history_length
        if full and event.timestamp_ms < self.history[0].timestamp_ms:
            outcome = Outcome.LATE
        else:
            place = sum(one.timestamp_ms <= event.timestamp_ms for one in self.history)
            self.history.insert(place, event)
            self.history = self.history[-history_length:]
        self.version += 1
        self.marks[event.event_id] = event.digest
        self.order.append(event.event_id)
        self.log.append(event)
        return outcome

    def forget(self, *, marks_kept):
        """Forget the oldest marks, all of them being old enough."""
        while len(self.order) > marks_kept:
            del self.marks[self.order.pop(0)]


SMALL_EVENTS = st.fixed_dictionaries(
    {
        "user_id": st.sampled_from(["u1", "u{2}", "u1:"]),
        "item_id": st.sampled_from(["a", "b"]),
        "event_type": st.sampled_from(["view", "cart"]),
        "event_id": st.sampled_from([*"abcdefghij", None]),
        "value": st.sampled_from([None, 0.5]),
        "timestamp_ms": st.one_of(st.none(), st.integers(BASE_MS, BASE_MS + 6)),
        "now_ms": st.integers(BASE_MS + 2, BASE_MS + 8),
    }
)
REQUESTS = st.lists(st.lists(SMALL_EVENTS, min_size=1, max_size=12), min_size=1, max_size=8)


def _compare(raw, user_id, model):
    keys = name_keys(user_id, prefix="nextitem:")
    assert raw.lrange(keys.history, 0, -1) == [event.entry() for event in model.history]
    assert int(raw.get(keys.version) or 0) == model.version
    assert raw.hgetall(keys.marks) == {key.encode(): digest.encode() for key, digest in model.marks.items()}
    assert [entry[14:].decode() for entry in raw.lrange(keys.order, 0, -1)] == model.order
    records = [json.loads(fields[b"e"]) for _, fields in raw.xrange(keys.log)]
    mine = [record for record in records if record["user_id"] == user_id]
    assert mine == [json.loads(event.log_record()) for event in model.log]


def test_the_store_does_what_the_model_does(store_url, raw):
    """Whatever is sent in whatever order, outcomes, histories, versions, marks and logs are those of the model."""
    with asyncio.Runner() as runner:

        async def open_store(**options):
            patient: dict[str, Any] = {"read_timeout_s": 10.0, "write_timeout_s": 10.0}  # a busy machine is no outage
            return HistoryStore(connect(store_url), marks_age_ms=0, **patient, **options)

        @settings(max_examples=100 * TIMES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(
            requests=REQUESTS,
            history_length=st.sampled_from([1, 2, 5, 1000]),
            marks_kept=st.sampled_from([3, KEEP_ALL]),
        )
        def check(requests, history_length, marks_kept):
            raw.flushall()
            store = runner.run(open_store(history_length=history_length, marks_kept=marks_kept))
            try:
                compare(store, requests, history_length, marks_kept)
            finally:
                runner.run(store.close())

        def compare(store, requests, history_length, marks_kept):
            models: dict[str, Any] = {}
            for request in requests:
                events = [make_event(**given_event) for given_event in request]
                expected = []
                for event in events:
                    model = models.setdefault(event.user_id, UserModel())
                    expected.append(model.append(event, history_length=history_length))
                named = {event.user_id for event in events}
                for user_id in named:
                    models[user_id].forget(marks_kept=marks_kept)
                appended = runner.run(store.append(events))
                assert appended.outcomes == expected
                assert appended.versions == {user_id: models[user_id].version for user_id in named}
            for user_id, model in models.items():
                _compare(raw, user_id, model)
            users = list(models)
            for user_id, history in zip(users, runner.run(store.read_many(users)), strict=True):
                model = models[user_id]
                assert history.version == model.version
                assert history.item_ids == [event.item_id for event in model.history]
                last = model.history[-1].timestamp_ms if model.history else None
                assert history.last_event_at_ms == last
                version, stored = runner.run(store.export(user_id))
                assert version == model.version
                wanted = [(e.event_id, e.item_id, e.type, e.value, e.timestamp_ms) for e in model.history]
                assert [(e.event_id, e.item_id, e.type, e.value, e.timestamp_ms) for e in stored] == wanted

        check()


def test_equal_entries_are_inserted_exactly(store_url, raw):
    """Entries equal to the byte, which forgotten marks allow, do not confuse the place of an insertion."""
    with asyncio.Runner() as runner:

        async def open_store():
            return HistoryStore(connect(store_url), history_length=20, marks_kept=0, marks_age_ms=0)

        store = runner.run(open_store())

        @settings(max_examples=80, deadline=None)
        @given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=25))
        def check(arrivals):
            raw.flushall()
            model = UserModel()
            for at, name in arrivals:
                event = make_event(
                    user_id="u", item_id=name, event_type="view", event_id=name, timestamp_ms=BASE_MS + at, now_ms=0
                )
                model.append(event, history_length=20)
                model.forget(marks_kept=0)
                runner.run(store.append([event]))
            _compare(raw, "u", model)

        try:
            check()
        finally:
            runner.run(store.close())
