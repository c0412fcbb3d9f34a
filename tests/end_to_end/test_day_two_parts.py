"""The parts of the demo of a second day: what is kept from the first model, what is sent, and what is read of it."""

import csv
import json

import httpx

from demo.live import Live, parse
from demo.movielens import Rating
from demo.new_films import Watching, choose_new, cut_past, write_log

METRICS = """\
nextitem_online_trials_total{variant="champion",version="A"} 30.0
nextitem_online_trials_total{variant="champion",version="B"} 10.0
nextitem_online_trials_total{variant="candidate",version="B"} 5.0
nextitem_online_gain_total{metric="ndcg@10",variant="champion",version="A"} 3.0
nextitem_online_gain_total{metric="ndcg@10",variant="champion",version="B"} 2.0
nextitem_online_gain_total{metric="mrr@100",variant="champion",version="B"} 7.0
nextitem_online_unknown_total{variant="champion",version="A"} 10.0
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
    assert live == Live(trials=40.0, gain=5.0, unknown=10.0, better=23.4)
    since = live.since(Live(trials=30.0, gain=3.0, unknown=10.0))
    assert (since.ndcg, since.unknown_share, since.better) == (0.2, 0.0, 23.4)
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
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"accepted": 1})

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
    part = sum(event["item_id"] in new for event in sent[20:]) / 400
    assert 0.4 < part < 0.6
