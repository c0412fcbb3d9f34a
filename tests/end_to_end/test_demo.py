"""The demo's own parts: it must find a false answer, count right, and leave nothing running however it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from demo.commands import DemoFailed
from demo.movielens import SHIFT_MS, Rating, read_ratings
from demo.replay import Online, _verify

BUNDLE = Path(__file__).parents[1] / "serving" / "bundle"
HISTORY = [Rating("u", "h1", 4.0, 1), Rating("u", "h2", 5.0, 2)]

SERVE = """
import signal, sys, time
from pathlib import Path
from demo.commands import serve

signal.signal(signal.SIGHUP, lambda *_: sys.exit(0))
folder = Path(sys.argv[2])
with serve(Path(sys.argv[1]), folder / "store", int(sys.argv[3]), folder / "log") as client:
    print(client.base_url, flush=True)
    time.sleep(600)
"""


def make_answer(**changes):
    """A true answer for HISTORY, with fields changed."""
    items = [{"item_id": f"i{rank}", "score": 20.0 - rank, "rank": rank} for rank in range(1, 11)]
    answer = {"source": "model", "degraded": None, "items": items, "count": 10, "history": {"version": 2, "length": 2}}
    return {**answer, **changes}


def test_true_answer_passes():
    """Nothing is wrong with an answer that is right."""
    assert _verify(make_answer(), HISTORY) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": "popular"}, "comes from the model"),
        ({"degraded": "store_unavailable"}, "comes from the model"),
        ({"items": make_answer()["items"][:9], "count": 9}, "ten different items"),
        ({"items": [*make_answer()["items"][:9], {"item_id": "i1", "score": 1.0, "rank": 10}]}, "ten different items"),
        ({"items": [*make_answer()["items"][:9], {"item_id": "h2", "score": 1.0, "rank": 10}]}, "has seen"),
        ({"items": [*make_answer()["items"][:9], {"item_id": "x", "score": 99.0, "rank": 10}]}, "ranked by score"),
        ({"items": [*make_answer()["items"][:9], {"item_id": "x", "score": 1.0, "rank": 11}]}, "counts its ranks"),
        ({"history": {"version": 1, "length": 1}}, "whole history"),
    ],
)
def test_false_answer_is_found(changes, words):
    """Each claim of the demo fails on the answer that breaks it."""
    with pytest.raises(DemoFailed, match=words):
        _verify(make_answer(**changes), HISTORY)


def test_online_metrics_by_hand():
    """Ranks 1 and 3 and a miss: HR@10 is 2/3, NDCG@10 is (1 + 1/2) / 3."""
    online = Online()
    for item in ("i1", "i3", "nowhere"):
        online.count(make_answer(), item)
    assert online.metrics == pytest.approx({"HR@10": 2 / 3, "NDCG@10": 0.5})


def test_ratings_are_sorted_as_the_trainer_sorts(tmp_path):
    """By time within a user, equal times in file order, and moved to our days."""
    path = tmp_path / "interactions.csv"
    path.write_text("user,item,timestamp,value\n2,a,5,1\n1,b,7,3\n1,c,6,4\n1,d,6,5\n")
    ratings = read_ratings(path)
    assert [rating.item for rating in ratings["1"]] == ["c", "d", "b"]
    assert ratings["2"] == [Rating("2", "a", 1.0, 5000 + SHIFT_MS)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a leash polls for half a second or more")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_service_ends_with_the_demo(tmp_path, number):
    """A closed terminal, or a kill -9 of the demo, ends the service and its store."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVE, BUNDLE, tmp_path, str(port)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url = demo.stdout.readline().strip()
    assert httpx.get(f"{url}/health/ready").status_code == 200
    os.kill(demo.pid, number)
    demo.wait(60)
    demo.stdout.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/health/live")
        except httpx.TransportError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the service still answers")
