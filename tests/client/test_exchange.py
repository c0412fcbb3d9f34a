"""The steps of a call without a service: what is sent again and when, and what ends it."""

import json
from itertools import chain, repeat
from random import Random

import pytest

from nextitem.client import calls, recording
from nextitem.client.answers import ItemDescription, Receipt
from nextitem.client.errors import (
    EventsRejected,
    Forbidden,
    Invalid,
    NotFound,
    Problem,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from nextitem.client.exchange import MAX_PAUSE_S, Clock, Done, Lost, Pause, Reply, Send, advance, ask, draw_pause
from nextitem.client.requests import RecommendRequest
from nextitem.client.settings import Limits

LIMITS = Limits()
LOST = Lost(OSError("gone"), "OSError")
ITEM = Reply(200, b'{"item_id":"i1","metadata":{}}')
BUSY = Reply(503, b"", retry_after=None)


class Line:
    """A line that answers by a script, with a clock that only it moves."""

    def __init__(self, *script, answers_after_s=0.01):
        self.replies = iter(script)
        self.now_s = 100.0
        self.answers_after_s = answers_after_s
        self.sent: list[Send] = []
        self.pauses: list[float] = []

    def ask(self, call, draw=lambda: 1.0):
        """The result of a call."""
        return self.drive(ask(call, self.clock(draw)))

    def record(self, events, *, strict=False):
        """What became of events."""
        return self.drive(recording.record_many(events, strict=strict, limits=LIMITS, clock=self.clock()))

    def clock(self, draw=lambda: 1.0):
        """Its clock, with the longest pauses."""
        return Clock(now_s=lambda: self.now_s, draw=draw)

    def drive(self, exchange):
        """The result of an exchange; a lost answer takes as long as the client waits for it."""
        reply = None
        while not isinstance(step := advance(exchange, reply), Done):
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now_s += step.seconds
                reply = None
            else:
                self.sent.append(step)
                reply = next(self.replies)
                self.now_s += step.timeout_s if isinstance(reply, Lost) else self.answers_after_s
        return step.result


def get_item():
    """A call that may be repeated for ten seconds."""
    return calls.get_item("i1", limits=LIMITS)


def problem(status, code, **fields):
    """A refusal of the service."""
    document = {"type": f"urn:nextitem:problem:{code}", "title": "No", "status": status, "detail": "Do so."}
    return Reply(status, json.dumps({**document, "request_id": "r-1", **fields}).encode())


def test_an_answer_ends_the_call():
    """One request, no pause."""
    line = Line(ITEM)
    assert line.ask(get_item()) == ItemDescription(item_id="i1", metadata={})
    assert [(step.method, step.path, step.body) for step in line.sent] == [("GET", "/items/i1", None)]
    assert line.pauses == []


@pytest.mark.parametrize("failure", [LOST, Reply(502, b"<html>"), BUSY, Reply(504, b"")])
def test_what_may_pass_is_sent_again(failure):
    """The same request, after pauses that double."""
    line = Line(failure, failure, failure, ITEM)
    line.ask(calls.get_item("i1", limits=Limits(attempt_timeout_s=0.5)))
    assert len(set(map(repr, line.sent))) == 1
    assert len(line.sent) == 4
    assert line.pauses == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (problem(400, "malformed-json"), Problem),
        (problem(401, "unauthorized"), Unauthorized),
        (problem(403, "forbidden"), Forbidden),
        (problem(404, "not-found"), NotFound),
        (problem(409, "deployment-refused"), Problem),
        (problem(422, "validation"), Invalid),
        (Reply(429, b"<html>"), Problem),
        (problem(500, "internal"), Problem),
        (Reply(301, b""), Problem),
        (Reply(200, b"<html>welcome to another service"), UnexpectedAnswer),
        (Reply(200, b'{"item_id":"i1"}'), UnexpectedAnswer),
    ],
)
def test_what_would_fail_again_is_sent_once(reply, kind):
    """No 4xx, no bug of the service and no answer of somebody else is asked for twice."""
    line = Line(reply)
    with pytest.raises(kind) as raised:
        line.ask(get_item())
    assert len(line.sent) == 1
    assert "welcome" not in str(raised.value)


def test_retry_after_is_the_least_pause():
    """The service's seconds, and on top of them a share that differs from client to client."""
    line = Line(Reply(503, b"", retry_after="2"), ITEM)
    line.ask(get_item(), draw=lambda: 0.5)
    assert line.pauses == [2.05]


def test_a_pause_beyond_the_limit_is_not_begun():
    """The caller learns at once that there is no time to come back in, and when it may."""
    line = Line(Reply(503, problem(503, "overloaded").content, retry_after="10"))
    with pytest.raises(Unavailable) as raised:
        line.ask(get_item())
    assert line.pauses == []
    assert (raised.value.code, raised.value.retry_after_s, raised.value.request_id) == ("overloaded", 10.0, "r-1")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("failure", [LOST, BUSY])
def test_all_attempts_end_within_the_limit(seed, failure):
    """However pauses fall, and if every attempt waits for as long as it may."""
    line = Line(*[failure] * 1000, answers_after_s=0.01)
    with pytest.raises((Unreachable, Unavailable)):
        line.ask(get_item(), draw=Random(seed).random)  # noqa: S311 - no secret
    assert line.now_s - 100.0 <= LIMITS.timeout_s + 1e-9
    assert len(line.sent) > 1


def test_pauses_are_drawn_from_spans_that_double():
    """From nothing to the whole span, and never more than the greatest."""
    assert [draw_pause(attempt, 0.1, None, lambda: 1.0) for attempt in (0, 1, 5, 9, 10**6)] == [0.1, 0.2, 3.2, 5.0, 5.0]
    assert draw_pause(3, 0.1, None, lambda: 0.0) == 0.0
    assert draw_pause(0, 0.1, "Wed, 21 Oct 2026 07:28:00 GMT", lambda: 1.0) == 0.1
    assert draw_pause(99, 0.1, "1", lambda: 1.0) == 1 + MAX_PAUSE_S


def test_a_lost_answer_says_so_without_the_path():
    """The route stands for it, which names no user."""
    line = Line(*[LOST] * 99)
    with pytest.raises(Unreachable, match=r"No answer to GET /users/\{user_id\}/history within 10 s, 4 attempts"):
        line.ask(calls.get_history("somebody", limits=LIMITS), draw=lambda: 0.0)


def test_recommendations_hand_on_what_is_left_of_their_time():
    """Each attempt asks for less, and the last is begun while the service can still do something with it."""
    line = Line(*[BUSY] * 99, answers_after_s=0.06)
    with pytest.raises(Unavailable):
        line.ask(calls.recommend({"user_id": "u", "timeout_ms": 200}, after=None, limits=LIMITS))
    times = [json.loads(step.body or "")["timeout_ms"] for step in line.sent]
    assert times == [200, pytest.approx(120, abs=1), pytest.approx(20, abs=1)]
    assert line.now_s - 100.0 <= 0.4


def test_batches_end_with_the_longest_of_their_requests():
    """The shorter ones are asked for the least that the service takes, once their time is over."""
    line = Line(BUSY, Reply(200, b'{"responses":[]}'), answers_after_s=0.1)
    requests: list[RecommendRequest] = [{"items": ["i"], "timeout_ms": 50}, {"items": ["i"]}]
    line.ask(calls.recommend_batch(requests, after=None, limits=LIMITS))
    bodies = [[each["timeout_ms"] for each in json.loads(step.body or "")["requests"]] for step in line.sent]
    assert bodies == [[50, 300], [10, pytest.approx(180, abs=1)]]
    assert line.sent[0].timeout_s == pytest.approx(0.5)


@pytest.mark.parametrize("given", [5, 0, -1])
def test_a_wrong_time_limit_stays_wrong(given):
    """The service says so; the client does not mend it on the way."""
    line = Line(BUSY, problem(422, "validation"), answers_after_s=0.001)
    with pytest.raises((Invalid, Unavailable)):
        line.ask(calls.recommend({"user_id": "u", "timeout_ms": given}, after=None, limits=LIMITS))
    assert {json.loads(step.body or "")["timeout_ms"] for step in line.sent} == {given}


def test_after_a_receipt_the_history_must_have_its_events():
    """The version of the request's own user; nothing for others, and what the caller says counts more."""
    receipt = Receipt(accepted=1, duplicates=0, late=0, rejected=(), history={"u": 7}, took_ms=1.0)
    requests: list[RecommendRequest] = [{"user_id": "u"}, {"user_id": "v"}, {"items": ["i"]}]
    wanted = []
    for request in (*requests, RecommendRequest(user_id="u", min_history_version=3)):
        call = calls.recommend(request, after=receipt, limits=LIMITS)
        wanted.append(json.loads(call.write(0.0) or "").get("min_history_version"))
    assert wanted == [7, None, None, 3]


def test_readiness_is_asked_once():
    """503 is an answer; none at all is told as it is."""
    line = Line(Reply(503, b'{"status":"starting","reasons":["model"]}'), LOST)
    assert line.ask(calls.get_readiness(limits=LIMITS)).status == "starting"
    with pytest.raises(Unreachable):
        line.ask(calls.get_readiness(limits=LIMITS))
    assert len(line.sent) == 2


def receipt_of(*rejected, accepted=0):
    """What the service says of events."""
    document = {"accepted": accepted, "duplicates": 0, "late": 0, "rejected": [*rejected], "history": {}, "took_ms": 1}
    return Reply(200, json.dumps(document).encode())


def events(count):
    """Events of one user."""
    return [{"user_id": "u", "item_id": f"i{number}"} for number in range(count)]


def test_every_attempt_carries_the_same_id():
    """Made once, another for each event, and kept where the caller gave one."""
    line = Line(LOST, BUSY, receipt_of(accepted=3))
    line.record([*events(2), {**events(1)[0], "event_id": "mine"}])
    bodies = {step.body for step in line.sent}
    assert len(line.sent) == 3
    assert len(bodies) == 1
    ids = [event["event_id"] for event in json.loads(bodies.pop() or "")["events"]]
    assert len(set(ids)) == 3
    assert ids[2] == "mine"


def test_a_failure_knows_what_was_not_acknowledged():
    """The receipt of the requests before it, and the rest with the ids that were sent."""
    line = Line(receipt_of(accepted=1000), *[LOST] * 99)
    with pytest.raises(Unreachable) as raised:
        line.record(events(1500))
    assert raised.value.receipt.accepted == 1000
    assert [event["item_id"] for event in raised.value.unacknowledged] == [f"i{n}" for n in range(1000, 1500)]
    assert [*raised.value.unacknowledged] == json.loads(line.sent[-1].body or "")["events"]


def test_rejections_count_from_the_first_event_of_all():
    """Though each request has its own indexes."""
    wrong = {"index": 2, "pointer": "/item_id", "code": "pattern", "detail": "no"}
    line = Line(receipt_of(wrong, accepted=999), receipt_of(wrong, accepted=4))
    receipt = line.record(events(1005))
    assert receipt.accepted == 1003
    assert [rejection.index for rejection in receipt.rejected] == [2, 1002]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            problem(
                422,
                "validation",
                errors=[
                    {"pointer": "/events/1/item_id", "code": "pattern", "detail": "no"},
                    {"pointer": "/events/1/user_id", "code": "pattern", "detail": "no"},
                    {"pointer": "/events/2", "code": "object_type", "detail": "no"},
                ],
            ),
            [("", "validation"), ("/item_id", "pattern"), ("", "object_type")],
        ),
        (problem(413, "body-too-large"), [("", "body-too-large")] * 3),
    ],
)
def test_a_request_without_a_valid_event_rejects_each(refusal, said):
    """It is no error that events after it would not survive; `strict` has it as one."""
    rejections = chain([receipt_of(accepted=1000), refusal], repeat(refusal))
    line = Line(*[next(rejections) for _ in range(3)])
    receipt = line.record(events(1003))
    assert [(each.pointer, each.code) for each in receipt.rejected] == said
    assert [each.index for each in receipt.rejected] == [1000, 1001, 1002]
    with pytest.raises(Problem):
        line.record(events(3), strict=True)
    assert line.sent[-1].path == "/events?strict=true"


def test_one_event_that_is_rejected_raises():
    """Nobody looks at the receipt of a single event."""
    line = Line(receipt_of({"index": 0, "pointer": "/event_id", "code": "conflict", "detail": "was used before"}))
    with pytest.raises(EventsRejected, match=r"rejected: /event_id was used before \(conflict\)"):
        line.drive(recording.record_one(events(1)[0], limits=LIMITS))
    with pytest.raises(TypeError, match="EventRequest has no field 'item'"):
        line.drive(recording.record_one({"user_id": "u", "item": "i"}, limits=LIMITS))  # type: ignore[typeddict-item]  # the mistake
