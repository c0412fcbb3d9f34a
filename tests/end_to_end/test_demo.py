"""The demo's own parts: it must find a false answer, count right, and leave nothing running however it ends."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from demo import bundle as demo_bundle
from demo import commands as demo_commands
from demo import counters as demo_counters
from demo.__main__ import find_served
from demo.bundle import ITEMS, LOG, make_bundle
from demo.commands import DemoFailed, serve
from demo.counters import Lead, describe_nearest, read_leads
from demo.movielens import SHIFT_MS, Rating, read_ratings
from demo.phases import Phases
from demo.replay import Online, _verify, count_all_stored, count_stored
from demo.traffic import Traffic, _send_past
from training.runs.lock import FIT

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


COMPARED = {
    "models": {
        "run": {"NDCG@10": {"value": 0.12}},
        "pop": {"NDCG@10": {"value": 0.05}},
        "rules": {"NDCG@10": {"value": 0.1}},
    },
    "differences": {
        "pop": {"NDCG@10": {"value": -0.07, "low": -0.08, "high": -0.06}},
        "rules": {"NDCG@10": {"value": -0.02, "low": -0.03, "high": 0.01}},
    },
}


def make_answer(**changes):
    """A true answer for HISTORY, with fields changed."""
    items = [{"item_id": f"i{rank}", "score": 20.0 - rank, "rank": rank} for rank in range(1, 11)]
    answer = {"source": "model", "degraded": None, "items": items, "count": 10, "history": {"version": 2, "length": 2}}
    return {**answer, **changes}


def test_true_answer_passes():
    """Nothing is wrong with an answer that is right."""
    _verify(make_answer(), HISTORY)


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
        ({"history": None}, "whole history"),
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


@pytest.fixture
def train_in_no_time(monkeypatch):
    """nextitem-train in name alone: the commands that it was given, and the results of runs that `fit` begins.

    The counters are behind every model. What `publish` publishes is the champion of the bundle folder.
    """
    commands = []
    leads: list[dict[str, float]] = []

    def measure(*arguments):
        commands.append(arguments[0])
        return json.dumps(COMPARED)

    def train(command, *arguments):
        commands.append(command)
        if command == "fit":
            run = Path(arguments[arguments.index("--out") + 1])
            if not run.exists():
                run.mkdir(parents=True)
                (run / "results.json").write_text(json.dumps({"over_popularity": leads.pop(0)}))
        if command == "publish":
            bundles = Path(arguments[arguments.index("--out") + 1])
            (bundles / "a").mkdir(parents=True, exist_ok=True)
            (bundles / "deployment.json").write_text(json.dumps({"champion": "a", "history": []}))

    monkeypatch.setattr(demo_bundle, "train", train)
    monkeypatch.setattr(demo_counters, "ask_trainer", measure)
    return commands, leads


def test_a_model_that_does_not_beat_popularity_is_not_kept(tmp_path, train_in_no_time, capsys):
    """It is not published, and the next start says why it trains another one, which is kept until asked otherwise."""
    commands, leads = train_in_no_time
    leads += [{"value": lead, "low": lead - 0.01, "high": lead + 0.01} for lead in (0.002, 0.05, 0.06)]
    folders = (tmp_path / "data", tmp_path / "runs", tmp_path / "bundles")
    with pytest.raises(DemoFailed, match=r"does not beat popularity beyond chance, .* \+0.0020 \[-0.0080, \+0.0120\]"):
        make_bundle(*folders, "bert4rec-small", Phases(), fresh=False)
    assert commands == ["fetch", "fit"]
    capsys.readouterr()
    run = make_bundle(*folders, "bert4rec-small", Phases(), fresh=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "is dropped and another one trained: it does not beat popularity beyond chance" in said
    assert commands == ["fetch", "fit", "fetch", "fit", "compare", "publish"]
    make_bundle(*folders, "bert4rec-small", Phases(), fresh=False)
    assert "dropped" not in capsys.readouterr().out
    assert json.loads((run / "results.json").read_text())["over_popularity"]["value"] == 0.05
    make_bundle(*folders, "bert4rec-small", Phases(), fresh=True)
    assert "dropped and another one trained: you asked for it" in " ".join(capsys.readouterr().out.split())
    assert json.loads((run / "results.json").read_text())["over_popularity"]["value"] == 0.06


@pytest.mark.parametrize(("by", "again"), [("publish", True), ("judge", False), ("cli:somebody", False)])
def test_another_start_leaves_alone_what_a_verdict_or_a_person_chose(tmp_path, train_in_no_time, capsys, by, again):
    """A retrained model that was promoted answers after the next start, too; asked for a fresh one, it is published."""
    commands, leads = train_in_no_time
    leads += [{"value": 0.05, "low": 0.04, "high": 0.06}] * 2
    folders = (tmp_path / "data", tmp_path / "runs", tmp_path / "bundles")
    run = make_bundle(*folders, "bert4rec-small", Phases(), fresh=False)
    (run / "published.json").write_text('{"versions": ["a"]}')
    history = [{"champion": "a", "by": "publish"}, {"champion": "b", "by": by}]
    (folders[2] / "deployment.json").write_text(json.dumps({"champion": "b", "history": history}))
    commands.clear()
    capsys.readouterr()
    make_bundle(*folders, "bert4rec-small", Phases(), fresh=False)
    assert commands == ["fetch", "fit", "compare", *(["publish"] if again else [])]
    assert ("has chosen another version" in " ".join(capsys.readouterr().out.split())) == (not again)
    make_bundle(*folders, "bert4rec-small", Phases(), fresh=True)
    assert commands[-1] == "publish"


def test_another_start_makes_nothing_while_nothing_has_changed(tmp_path, train_in_no_time, capsys, monkeypatch):
    """No command runs, until the code is another one, the data or the bundle is gone, or somebody asks for it."""
    commands, leads = train_in_no_time
    leads += [{"value": 0.05, "low": 0.04, "high": 0.06}] * 2
    data, runs, bundles = (tmp_path / name for name in ("data", "runs", "bundles"))
    data.mkdir()
    for file in (LOG, ITEMS):
        (data / file).write_text("")

    def start(*, fresh=False):
        commands.clear()
        make_bundle(data, runs, bundles, "bert4rec-small", Phases(), fresh=fresh)
        return list(commands)

    every = ["fetch", "fit", "compare", "publish"]
    assert start() == every
    capsys.readouterr()
    assert start() == []
    assert "trained and published by an earlier start" in " ".join(capsys.readouterr().out.split())
    with monkeypatch.context() as patched:
        patched.setattr(demo_bundle, "digest_code", lambda: "upgraded")
        assert start() == every
    (data / ITEMS).unlink()
    assert start() == every
    (data / ITEMS).write_text("")
    assert start() == []
    (bundles / "a").rmdir()
    assert start() == every
    assert start(fresh=True) == every


def test_a_digest_of_the_code_is_of_what_trains_and_publishes(tmp_path, monkeypatch):
    """A changed file of the trainer makes another one, a file of the tests does not."""
    for room in ("model", "training", "tests"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "a.py").write_text("one = 1\n")
    monkeypatch.setattr(demo_bundle, "ROOT", tmp_path)
    before = demo_bundle.digest_code()
    (tmp_path / "tests" / "a.py").write_text("one = 2\n")
    assert demo_bundle.digest_code() == before
    (tmp_path / "training" / "a.py").write_text("one = 2\n")
    assert demo_bundle.digest_code() != before


def test_the_trainer_has_one_thread_unless_somebody_says_otherwise(monkeypatch):
    """Two that wait for each other beside busy processes are slower than one."""
    monkeypatch.setattr(demo_commands, "_find", lambda _: sys.executable)
    ask_threads = ("-c", "import os; print(os.environ['OMP_NUM_THREADS'])")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert demo_commands.ask_trainer(*ask_threads) == "1\n"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert demo_commands.ask_trainer(*ask_threads) == "2\n"


def test_the_nearest_counter_comes_first():
    """Leads are the differences turned round; the sentence says when chance can explain one, or who is ahead."""
    nearest, other = read_leads(json.dumps(COMPARED))
    assert nearest == Lead("rules", 0.1, 0.02, -0.01, 0.03)
    assert (other.counter, other.low) == ("pop", 0.06)
    assert nearest.share == pytest.approx(0.2)
    assert "chance can explain" in describe_nearest(nearest)
    assert "pop comes nearest." in describe_nearest(other)
    assert "pop is not behind" in describe_nearest(Lead("pop", 0.1, 0.0, -0.01, 0.01))


def test_a_check_fails_where_a_counter_is_not_behind(tmp_path, monkeypatch):
    """Without --check it is shown and no failure."""
    ahead = json.loads(json.dumps(COMPARED))
    ahead["differences"]["pop"]["NDCG@10"] = {"value": 0.001, "low": -0.01, "high": 0.02}
    monkeypatch.setattr(demo_counters, "ask_trainer", lambda *_: json.dumps(ahead))
    demo_bundle.compare(tmp_path, tmp_path / LOG, tmp_path / "picture.png", check=False)
    with pytest.raises(DemoFailed, match="pop is not behind"):
        demo_bundle.compare(tmp_path, tmp_path / LOG, tmp_path / "picture.png", check=True)


def test_online_is_held_against_what_is_served():
    """With rules in the score the asking user's own history is among them; without rules there is one figure."""
    results = {"models": {"bert4rec": {"HR@10": 1}, "bert4rec-rules": {"HR@10": 2}}}
    assert find_served(results, "bert4rec") == {"HR@10": 1}
    assert find_served(results | {"served": {"HR@10": 3}}, "bert4rec-rules") == {"HR@10": 3}


def test_a_run_is_not_dropped_under_a_training(tmp_path, train_in_no_time):
    """Whose lock is held: the second trainer of two says so, and the first one's run is left alone."""
    _, leads = train_in_no_time
    leads += [{"value": 0.05, "low": 0.04, "high": 0.06}]
    folders = (tmp_path / "data", tmp_path / "runs", tmp_path / "bundles")
    run = make_bundle(*folders, "bert4rec-small", Phases(), fresh=False)
    with (run / FIT).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DemoFailed, match="another training is under way"):
            make_bundle(*folders, "bert4rec-small", Phases(), fresh=True)
    assert (run / "results.json").is_file()


def test_a_run_that_was_stopped_is_no_weak_one(tmp_path):
    """Without results there is nothing to judge by: it is resumed."""
    run = tmp_path / "run"
    run.mkdir()
    assert demo_bundle.find_weakness(run) is None
    (run / "results.json").write_text("{}")
    assert demo_bundle.find_weakness(run) == "it was never held against popularity"


@pytest.fixture
def served(tmp_path):
    """A client of a service with the small bundle, as the demo runs it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serve(BUNDLE, tmp_path / "store", port, tmp_path / "log") as client:
        yield client


def test_traffic_replays_each_log_and_begins_anew(served):
    """The past is sent once; every user goes on where the service remembers them to be, past the end of the log."""
    now_ms = int(time.time() * 1000)
    logs = {
        user: [Rating(user, f"i{number:02}", 4.0, now_ms - 10_000 + number) for number in range(1, 6)]
        for user in ("u1", "u2")
    }
    for _ in range(2):  # a restart sends nothing twice
        _send_past(served, logs)
    assert [count_stored(served, user) for user in logs] == [4, 4]
    assert count_all_stored(served, ["u1", "nobody", "u2"]) == {"u1": 4, "nobody": 0, "u2": 4}
    traffic = Traffic(served, logs)
    assert all(traffic.step() for _ in range(150))
    tally = dict(traffic.tally)
    assert tally["answers from model"] > 10 * tally["answers from popular"] > 0
    assert tally["events"] + tally["answers from model"] + tally["answers from popular"] >= 150
    stored = [served.get(f"/users/{user}/history").json()["events"] for user in logs]
    counts = served.get("/metrics").text
    [duplicates] = map(float, re.findall(r'result="duplicate",type="rating"} (.*)', counts))
    assert sum(map(len, stored)) == 8 + tally["events"] - duplicates
    assert 0 < duplicates < tally["events"]
    assert max(map(len, stored)) > 5
    for user, events in zip(logs, stored, strict=True):
        assert [event["event_id"] for event in events] == [f"ml-{user}-{number}" for number in range(len(events))]
        known = [(logs[user][number % 5].item, "not-in-the-catalogue") for number in range(len(events))]
        assert all(event["item_id"] in items for event, items in zip(events, known, strict=True))
    assert re.fullmatch(
        r"\d+ answers from model, .*, \d+ events; half within .* ms, 99 % within .* ms", traffic.report()
    )
    assert traffic.report() == "nothing; half within 0.0 ms, 99 % within 0.0 ms"


def test_traffic_outlives_the_service(capsys):
    """A service that is away is said once in a report, and the next step tries again."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        traffic = Traffic(client, {"u1": [Rating("u1", "i01", 4.0, 1)]})
        assert [traffic.step() for _ in range(3)] == [False] * 3
    assert capsys.readouterr().out.count("A request failed, going on:") == 1
    assert traffic.report().startswith("3 failed;")


@pytest.mark.parametrize("rate", ["0", "101", "nan", "x"])
def test_traffic_refuses_a_rate_that_it_cannot_keep(rate):
    """A clear error, and status 2."""
    command = [sys.executable, "-m", "demo.traffic", "--data", "nowhere", "--rate", rate]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "argument --rate" in ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a parent's death is polled, for half a second or more")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_service_ends_with_the_demo(tmp_path, number):
    """A closed terminal, or a kill -9 of the demo, ends the service and its store."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVE, BUNDLE, tmp_path, str(port)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert demo.stdout
    url = demo.stdout.readline().strip()
    assert httpx.get(f"{url}/health/ready").status_code == 200
    os.kill(demo.pid, number)
    demo.wait(60)
    demo.stdout.close()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/health/live")
        except httpx.TransportError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the service still answers")
