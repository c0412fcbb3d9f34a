"""What the comparison with and without the judge makes of its turns, and the events that it sends."""

import json
from itertools import islice

import pytest

from benchmarks.reliability.judged import EVENTS_EACH, Turns, make_events
from service.judge.user_cap import TRIALS_AN_HOUR


def test_cost_is_what_gets_worse() -> None:
    """Longer times and fewer answers are both a cost; each turn is compared with its neighbour."""
    times = Turns("p99", "ms", times=True, without=[10.0, 20.0, 40.0], judged=[11.0, 22.0, 80.0])
    rates = Turns("rate", "/s", without=[100.0, 50.0, 80.0], judged=[90.0, 45.0, 80.0])
    assert times.cost == pytest.approx(0.1)
    assert rates.cost == pytest.approx(0.1)


def test_each_event_can_be_scored() -> None:
    """No user meets an item twice, or has more events than the judge scores in an hour; all users have as many."""
    items = [f"i{number}" for number in range(20)]
    events = [json.loads(post.partition(b"\r\n\r\n")[2]) for post in islice(make_events(items), 1000)]
    pairs = {(event["user_id"], event["item_id"]) for event in events}
    assert len(pairs) == len({event["event_id"] for event in events}) == 1000
    assert len({user for user, _ in pairs}) == 1000 / EVENTS_EACH
    assert EVENTS_EACH <= TRIALS_AN_HOUR
