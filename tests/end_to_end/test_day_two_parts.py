"""The parts of the demo of a second day: what is kept from the first model, what is sent, and what is read of it."""

import csv
import json
import re

import httpx
import pytest

from demo import replay
from demo.commands import DemoFailed
from demo.live import Course, Live, draw_bars, parse
from demo.movielens import Rating
from demo.new_films import Watching, choose_new, cut_past, write_log
from demo.picture import draw_day

METRICS = """\
nextitem_online_trials_total{variant="champion",version="A"} 30.0
nextitem_online_trials_total{variant="champion",version="B"} 10.0
nextitem_online_trials_total{variant="candidate",version="B"} 5.0
nextitem_online_gain_total{metric="ndcg@10",variant="champion",version="A"} 3.0
nextitem_online_gain_total{metric="ndcg@10",variant="champion",version="B"} 2.0
nextitem_online_gain_total{metric="mrr@100",variant="champion",version="B"} 7.0
nextitem_online_unknown_total{variant="champion",version="A"} 10.0
nextitem_online_skipped_total{reason="seen"} 3.0
nextitem_online_skipped_total{reason="capped"} 4.0
nextitem_trial_e_value{verdict="promote"} 23.4
nextitem_trial_e_value{verdict="return"} 0.1
"""


def make_ratings():
    """Ten users; film number n is rated by the first 10 - n // 100 of them, 410 films."""
    return {
        str(user): [
            Rating(str(user), f"f{film:03}", 4.0, 1_000 * film) for film in range(410) if user < 10 - film // 100
        ]
        for user in range(10)
    }


def test_live_figures_are_read():
    """The champion's alone, over all versions; and what came since an earlier look."""
    live = parse(METRICS)
    assert live == Live(trials=40.0, gain=5.0, unknown=10.0, skipped=7.0, better=23.4)
    since = live.since(Live(trials=30.0, gain=3.0, unknown=10.0, skipped=5.0))
    assert (since.ndcg, since.unknown_share, since.seen, since.better) == (0.2, 0.0, 12.0, 23.4)
    assert parse("") == Live()
    assert Live().ndcg == Live().unknown_share == 0.0


def test_new_films_are_every_fourth_of_the_most_rated(tmp_path):
    """And the first model's log has none of them, in our days' milliseconds."""
    ratings = make_ratings()
    new = choose_new(ratings)
    assert sorted(new) == [f"f{film:03}" for film in range(3, 400, 4)]
    past = cut_past(ratings, new)
    assert len(past[0]) == int(0.7 * 310)
    write_log(past, tmp_path / "past.csv")
    with (tmp_path / "past.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(map(len, past))
    assert not new & {row["item"] for row in rows}
    assert rows[1] == {"user": "0", "item": "f001", "timestamp": "1000"}


def test_watching_goes_on_where_the_past_ended():
    """Everybody in turn and in order, numbered on; new films only once they are out."""
    ratings, sent = make_ratings(), []

    def take(request):
        events = json.loads(request.content)["events"]
        sent.extend(events)
        return httpx.Response(200, json={"accepted": len(events), "duplicates": 0})

    new = choose_new(ratings)
    past = cut_past(ratings, new)
    with httpx.Client(base_url="http://service", transport=httpx.MockTransport(take)) as client:
        watching = Watching.begin(client, ratings, past, new)
        list(watching.play(rate=1e6, seconds=20e-6))
        assert sorted(event["user_id"] for event in sent) == sorted([*map(str, range(10))] * 2)
        assert not new & {event["item_id"] for event in sent}
        first = [event for event in sent if event["user_id"] == "0"]
        later = [rating.item for rating in ratings["0"] if rating.item not in new][len(past[0]) :]
        assert [event["item_id"] for event in first] == later[:2]
        assert [event["event_id"] for event in first] == [f"ml-0-{len(past[0])}", f"ml-0-{len(past[0]) + 1}"]
        watching.with_new = True
        list(watching.play(rate=1e6, seconds=400e-6))
        assert len(sent) == watching.sent == 420
        part = sum(event["item_id"] in new for event in sent[20:]) / 400
        assert 0.4 < part < 0.6
        left = watching.count_left()
        assert sum(watching.send_at_once(0.5)) == len(sent) - 420 == pytest.approx(left / 2, abs=10)
        assert watching.count_left() == left - len(sent) + 420
    assert len({event["event_id"] for event in sent}) == len(sent)


def test_a_night_leaves_something_to_everybody():
    """Half of what each user is yet to rate comes; a request that is not taken whole is an error."""
    ratings, accepted = make_ratings(), [500]
    new = choose_new(ratings)

    def take(request):
        count = len(json.loads(request.content)["events"])
        return httpx.Response(200, json={"accepted": min(count, accepted[0]), "duplicates": 0})

    with httpx.Client(base_url="http://service", transport=httpx.MockTransport(take)) as client:
        watching = Watching.begin(client, ratings, cut_past(ratings, new), new)
        watching.with_new = True
        list(watching.send_at_once(0.5))
        assert all(watching.known[user] or watching.fresh[user] for user in ratings)
        accepted[0] = 1
        with pytest.raises(DemoFailed, match="took 1 of"):
            list(watching.send_at_once(0.5))


def test_events_that_find_no_store_are_sent_again(monkeypatch):
    """The same events, a few times; then the service's words are the error."""
    monkeypatch.setattr(replay, "AGAIN_S", 0.0)
    statuses, bodies = [503, 503, 200, *[503] * replay.TRIES], []

    def answer(request):
        bodies.append(request.content)
        return httpx.Response(statuses.pop(0), json={"accepted": 1, "duplicates": 0, "title": "no store"})

    with httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer)) as client:
        assert replay.send_events(client, [{"event_id": "e"}])["accepted"] == 1
        assert len(bodies) == 3
        assert len(set(bodies)) == 1
        with pytest.raises(DemoFailed, match="no store"):
            replay.send_events(client, [{"event_id": "e"}])
    assert not statuses


def test_a_degraded_answer_is_asked_for_again(monkeypatch):
    """A few times; the last one is given to whoever verifies it."""
    monkeypatch.setattr(replay, "AGAIN_S", 0.0)
    reasons = ["store_unavailable", "model_timeout", None, *["store_unavailable"] * replay.TRIES]

    def answer(_):
        return httpx.Response(200, json={"degraded": reasons.pop(0)})

    with httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer)) as client:
        assert replay.ask(client, "u")["degraded"] is None
        assert len(reasons) == replay.TRIES
        assert replay.ask(client, "u")["degraded"] == "store_unavailable"
    assert not reasons


def test_the_course_of_a_day_is_split_and_drawn():
    """Each look but those without news adds a part; the picture has each phase, its points and the evidence."""
    pages = iter([(0, 0, 1), (500, 50, 1), (500, 50, 1), (900, 66, 4), (1400, 136, 25)])

    def answer(_):
        trials, gain, better = next(pages)
        return httpx.Response(
            200,
            text=f"""\
nextitem_online_trials_total{{variant="champion"}} {trials}
nextitem_online_gain_total{{metric="ndcg@10",variant="champion"}} {gain}
nextitem_trial_e_value{{verdict="promote"}} {better}
""",
        )

    with httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer)) as client:
        course = Course(client)
        for phase in ("before", "before", "on trial", "on trial"):
            course.look(phase)
    assert [(phase, new.trials, round(new.ndcg, 3), new.better) for _, phase, new in course.split()] == [
        ("before", 500.0, 0.1, 1.0),
        ("on trial", 400.0, 0.04, 4.0),
        ("on trial", 500.0, 0.14, 25.0),
    ]
    assert [row["trials"] for row in course.describe()] == [500.0, 400.0, 500.0]
    assert draw_bars(new.ndcg for _, _, new in course.split()) == "▆▃█"
    picture = draw_day(course.split(), enough=20.0)
    assert {"before", "on trial", "0.15", "20"} <= set(re.findall(r">([^<>]+)</text>", picture))
    assert picture.count("#0072B2") == 3
    assert picture.count("<circle") == 2
    assert draw_day([], enough=20.0).startswith("<svg")
