"""The comparison of services: its load, its arithmetic, whose answers are right, and the smallest run of all."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from benchmarks.harness.cases import Case, draw_network
from benchmarks.harness.closed_loop import (
    Sample,
    ask_once,
    connect_tcp,
    connect_unix,
    drive_closed,
    drive_open,
    judge_http,
)
from benchmarks.harness.cpu_time import count_cpu, list_family
from benchmarks.harness.open_loop import Shot, encode_post
from benchmarks.serving.batches import QUESTIONS, Batches
from benchmarks.serving.events import encode_call, encode_event, judge_call, load_script
from benchmarks.serving.material import draw_histories, draw_items, write_network
from benchmarks.serving.matrix import find_best, find_capacities
from benchmarks.serving.picture import draw_latencies
from benchmarks.serving.proof import AnswersDiffer, measure_distance, prove
from benchmarks.serving.roster import PEERS, K, list_systems
from benchmarks.serving.rounds import Plan, rotate, take_turn
from benchmarks.serving.servers import Server, ServerFailed, Setting, find_port, serve
from benchmarks.serving.summary import format_start, format_summary, summarize, summarize_events
from benchmarks.serving.systems.orders import Batching, Orders
from benchmarks.serving.systems.plain import PlainModel
from benchmarks.serving.tuning import GRIDS, Tried, choose, try_settings
from model.contract.sequence import encode_histories
from model.contract.vocabulary import Vocabulary
from service.embedded.server import EmbeddedStore
from service.store.connection import connect
from service.store.history import HistoryStore

CASE = Case(12, 300, 16)
ROOT = Path(__file__).parents[2]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood"
NOT_GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache folder with the network of CASE."""
    folder = tmp_path_factory.mktemp("cache")
    write_network(CASE, folder, announce=lambda _: None)
    return folder


@pytest.fixture(scope="module")
def network(cache):
    """The folder of CASE."""
    return write_network(CASE, cache, announce=lambda words: pytest.fail(f"written again: {words}"))


@pytest.fixture
def answering():
    """Starts a server that answers each request on a connection with what a function makes of its number."""
    servers = []

    def start(answer):
        numbers = itertools.count()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with contextlib.suppress(ConnectionError):  # a loop ends without reading what is under way
                    while self.request.recv(1 << 16) and (words := answer(next(numbers))):
                        for part in words:
                            self.request.sendall(part)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return connect_tcp(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def make_turn(load, system, number, rate, *, p50_ms=1.0, p99_ms=5.0, cpu_us=100.0, **more):
    """A turn as it is recorded."""
    cores = {"generator": 0.1, "server": 1.0, "store": 0.2, "idle contestants": 0.0}
    times = {"p50_ms": p50_ms, "p90_ms": 2.0, "p99_ms": p99_ms, "late_p99_ms": None, "failed": 0}
    turn = {"load": load, "contestant": system, "round": number, "rate": rate, "cpu_us": cpu_us, "cores": cores}
    return turn | times | more


def test_answers_are_judged_whole():
    """An answer counts once all of it is there, and is good with status 200 and its mark only."""
    judge = judge_http(b"o", times=2)
    assert judge(OK[:-1]) is None
    assert judge(OK[:20]) is None
    assert judge(OK) is True
    assert judge(NOT_GOOD) is False
    assert judge(OK.replace(b"200", b"503")) is False


def test_a_closed_loop_counts_good_answers_alone(answering):
    """Good ones in parts too; bad ones and lost connections are failures; it ends when nothing is left to ask."""
    answers = {0: [OK], 1: [NOT_GOOD], 2: [OK[:9], OK[9:]], 3: []}
    connect = answering(lambda number: answers.get(number, [OK]))
    payloads = iter([b"x"] * 8)
    sample = drive_closed(connect, payloads, judge_http(b"good"), connections=1, seconds=30.0)
    assert (len(sample.latencies), sample.failed) == (6, 2)
    assert sample.seconds < 30
    assert sample.describe()["late_p99_ms"] is None
    sample.rows = 3
    assert sample.describe()["rate"] == pytest.approx(18 / sample.seconds)


def test_a_closed_loop_ends_in_time(answering):
    """Whatever there is to ask: what is under way at the end is not counted."""
    connect = answering(lambda _: [OK])
    sample = drive_closed(connect, itertools.repeat(b"x"), judge_http(b"good"), connections=2, seconds=0.1)
    assert sample.seconds >= 0.1
    assert sample.latencies


def test_an_open_loop_counts_from_when_a_request_was_due(answering):
    """Behind a slow answer on the only connection, all that was due meanwhile is late, and says so."""
    pause = threading.Event()

    def answer(number):
        if number == 0:
            pause.wait(0.3)
        return [OK]

    shots = [Shot(0.001 * number, b"x") for number in range(5)]
    sample = drive_open(answering(answer), shots, judge_http(b"good"), connections=1, seconds=0.01)
    assert len(sample.latencies) == 5
    assert min(sample.latencies) >= 0.29
    assert (sample.describe()["late_p99_ms"] or 0) >= 290
    assert sample.seconds >= 0.3


def test_cpu_time_is_that_of_the_whole_family():
    """A child's time counts with its parent's, and the child is in the family."""
    code = "while sum(range(9999)): pass"
    parent = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"]
    with subprocess.Popen(parent, start_new_session=True) as process:
        while len(family := list_family(process.pid)) < 2 or count_cpu(process.pid) < 0.3:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    assert family[0] == process.pid
    assert count_cpu(process.pid) == 0


def test_small_catalogues_are_in_large_ones():
    """One store serves every catalogue: histories hold what all of them know, anywhere in the order."""
    small, large = draw_items(300), draw_items(5000)
    assert set(small) < set(large)
    places = np.searchsorted(sorted(large), small)
    assert places.min() < 500
    assert places.max() > 4500
    histories = draw_histories(CASE, 50)
    assert {len(items) for items in histories["full"].values()} == {CASE.max_length - 1}
    assert (len(histories["mixed"]), len(histories["full"])) == (50, 5)
    assert {item for kind in histories.values() for items in kind.values() for item in items} <= set(small)


def test_the_plain_export_answers_as_pytorch(network):
    """A batch of mixed lengths, best items first, none that was seen."""
    model = PlainModel(network)
    vocabulary = Vocabulary(sorted(draw_items(CASE.items)))
    histories = list(draw_histories(CASE, 20)["mixed"].values())
    inputs = encode_histories(
        [vocabulary.encode_known(items) for items in histories],
        max_length=CASE.max_length,
        mask_index=vocabulary.mask_index,
    )
    with torch.inference_mode():
        scores = draw_network(CASE, "bert4rec")(*map(torch.from_numpy, inputs)).numpy()
    for row, items, ranked in zip(scores, histories, model.rank(histories, K), strict=True):
        row[vocabulary.encode_known(items) - 1] = -np.inf
        best = np.argsort(-row)[:K]
        assert [item for item, _ in ranked] == vocabulary.decode((best + 1).tolist())
        assert [score for _, score in ranked] == pytest.approx(row[best].tolist(), abs=1e-4)
        answer = model.rank([items], K)[0]
        assert [item for item, _ in answer] == [item for item, _ in ranked]
        assert [score for _, score in answer] == pytest.approx([score for _, score in ranked], abs=1e-4)


def test_a_wrong_answer_is_found(network, answering):
    """Another order, a repeated item, a seen item and an unknown one are all mistakes."""
    model = PlainModel(network)
    [items] = itertools.islice(draw_histories(CASE, 10)["full"].values(), 1)
    right = [item for item, _ in model.rank([items], K)[0]]
    assert measure_distance(model, items, right) == 0
    assert measure_distance(model, items, right[::-1]) > 1e-4
    for wrong in ([*right[:-1], right[0]], [*right[:-1], items[0]], [*right[:-1], "nobody"], right[:-1]):
        assert measure_distance(model, items, wrong) == float("inf")

    [textbook, *_] = (each for each in list_systems() if each.kind == "textbook")
    content = json.dumps({"items": [{"item_id": item} for item in right[::-1]]}).encode()
    connect = answering(lambda _: [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(content), content)])
    with pytest.raises(AnswersDiffer, match="textbook, 1 worker: the scores"):
        prove(textbook, Server(0, connect), model, {"u": items})
    with pytest.raises(AnswersDiffer, match="u was answered 'good'"):
        prove(textbook, Server(0, answering(lambda _: [OK])), model, {"u": items})


def test_events_go_the_same_way(tmp_path):
    """What is driven directly is read back as the service reads it; an event that comes again is no good answer."""
    with EmbeddedStore(tmp_path / "data") as store:
        path = urlsplit(store.url).path
        sha = load_script(path)
        call = encode_call(sha, 7)
        assert ask_once(connect_unix(path), call, judge_call) == (True, b"*2\r\n:1\r\n:0\r\n")
        assert ask_once(connect_unix(path), call, judge_call)[0] is False
        assert ask_once(connect_unix(path), call.replace(sha.encode(), b"0" * 40), judge_call)[0] is False

        async def read():
            histories = HistoryStore(connect(store.url), read_timeout_s=10.0, write_timeout_s=10.0)
            try:
                return await histories.read_many(["user-7"])
            finally:
                await histories.close()

        [history] = asyncio.run(read())
    sent = json.loads(encode_event(7).partition(b"\r\n\r\n")[2])
    assert (history.version, history.item_ids) == (1, [sent["item_id"]])


def test_batches_are_counted_by_question(answering):
    """An answer counts for all its questions if the model answered each; a service without the route is found out."""
    content = b'"source":"model","degraded":null' * QUESTIONS
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(content), content)
    batches = Batches.find(Server(0, answering(lambda _: [answer])), ["a", "b"])
    assert batches
    sample = batches.run_closed(0.1)
    assert sample.rate == pytest.approx(QUESTIONS * len(sample.latencies) / sample.seconds)
    assert len(json.loads(batches.payloads[0].partition(b"\r\n\r\n")[2])["requests"]) == QUESTIONS
    missing = answering(lambda _: [b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"])
    assert Batches.find(Server(0, missing), ["a"]) is None


def test_every_setting_of_a_framework_is_tried(answering, tmp_path):
    """A server for each, started with what its process will read; the one that answers most is chosen."""
    system = next(each for each in list_systems() if each.kind == "litserve")
    plan = Plan(rounds=2, seconds=0.2, connections=2, environments=tmp_path)
    body = b'{"items":[{"item_id":"a"}]}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    started = []

    def serve_batching(batching):
        started.append(batching)
        worse = batching != GRIDS["litserve"][3]
        return contextlib.nullcontext(Server(0, answering(lambda _: [NOT_GOOD if worse else answer])))

    tried = list(try_settings(system, serve_batching, [encode_post("/", b"{}")], plan))
    assert tuple(started) == GRIDS["litserve"]
    assert choose(tried) == GRIDS["litserve"][3]
    assert [bool(each.rate) for each in tried] == [each == GRIDS["litserve"][3] for each in started]
    assert all(each.failed > 0 for each in tried if not each.rate)
    failing = Tried(16, 0.0, 10.0 * max(each.rate for each in tried), 1)
    assert choose([*tried, failing]) == GRIDS["litserve"][3]
    assert choose([failing]) == Batching(16, 0.0)
    assert system.command
    words = system.command(Setting(tmp_path, "", 1, tmp_path, choose(tried)))
    assert {"BENCH_WORKERS=1", "BENCH_ROWS=8", "BENCH_WAIT_S=0.005"} <= set(words)
    assert "8 rows, 5 ms: " in format_start({"start_s": {}, "tuning": {"litserve": [each._asdict() for each in tried]}})


def test_orders_reach_the_process():
    """What a command begins with is what the process that it becomes reads; one row is no batch."""
    orders = Orders(2, Batching(16, 0.001))
    script = "from benchmarks.serving.systems.orders import Orders; print(Orders.from_environment())"
    command = [*orders.to_words(), sys.executable, "-c", script]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.check_output(command, env=environment, text=True).strip() == str(orders)
    assert {grid[0] for grid in GRIDS.values()} == {Batching(1, 0.0)}


@pytest.mark.parametrize(("answers", "seconds"), [(1000, 1.0), (10, 2.0), (1, 4.0), (0, 4.0)])
def test_the_slow_get_longer_turns(answers, seconds):
    """By what they did to warm up: as long as a hundred answers take, four times as long at most."""
    asked = []

    def load(length):
        asked.append(length)
        return Sample(seconds=length, latencies=[0.001] * (answers if len(asked) == 1 else 7))

    turn = take_turn(load, "a", {}, 1.0)
    assert asked == [0.2, pytest.approx(seconds)]
    assert turn["seconds"] == pytest.approx(seconds)
    assert turn["rate"] == pytest.approx(7 / seconds)


def test_everybody_begins_once():
    """The order of turns moves on by one in every round."""
    assert [list(rotate("abc", number)) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_ratios_are_those_of_a_round():
    """Each kind by its better number of workers, rounds against rounds, and the times beyond the ceilings."""
    turns = [
        *(make_turn("closed", "nextitem, 1 worker", number, 10.0) for number in (0, 1)),
        make_turn("closed", "nextitem, 2 workers", 0, 400.0, cpu_us=50.0),
        make_turn("closed", "nextitem, 2 workers", 1, 200.0, cpu_us=100.0),
        make_turn("closed", "textbook, 1 worker", 0, 100.0, cpu_us=200.0),
        make_turn("closed", "textbook, 1 worker", 1, 40.0, cpu_us=300.0),
        make_turn("closed", "litserve, 1 worker", 0, 50.0),
        make_turn("closed", "bentoml, 1 worker", 0, 80.0),
        make_turn("closed", "empty ASGI, 1 worker", 0, 800.0),
        make_turn("closed", "ONNX Runtime", 0, 1000.0),
        make_turn("batch", "ONNX Runtime", 0, 2000.0),
        make_turn("batch", "nextitem, 1 worker", 0, 1500.0),
        make_turn("alone", "nextitem, 1 worker", 0, 1.0, p50_ms=0.9),
        make_turn("alone", "textbook, 1 worker", 0, 1.0, p50_ms=1.8),
        make_turn("alone", "empty ASGI, 1 worker", 0, 1.0, p50_ms=0.2),
        make_turn("alone", "ONNX Runtime", 0, 1.0, p50_ms=0.4),
        make_turn("open", "nextitem, 2 workers", 0, 280.0, p99_ms=4.5, share=0.7, offered=280.0, late_p99_ms=0.1),
    ]
    summary = summarize(turns)
    found = {words: spread["median"] for words, spread in summary["comparisons"].items()}
    assert found == pytest.approx(
        {
            "nextitem, 2 workers / textbook, 1 worker, answers a second": 4.5,
            "nextitem, 2 workers / bentoml, 1 worker, answers a second": 5.0,
            "textbook, 1 worker / nextitem, 2 workers, CPU time of an answer": 3.5,
            "bentoml, 1 worker / nextitem, 2 workers, CPU time of an answer": 2.0,
            "nextitem, 2 workers / empty ASGI, 1 worker, answers a second": 0.5,
            "textbook / nextitem, p50 of one request at a time": 2.0,
            "one request at a time, p50 beyond empty ASGI and ONNX Runtime, ms": 0.3,
            "POST /recommend/batch / ONNX Runtime on one thread, answers a second": 0.75,
            "open loop at 70 %, p99 / p50 of one request at a time": 5.0,
        }
    )
    assert "4.50 (4.00 to 5.00)" in format_summary(summary)
    capacities = find_capacities(turns)
    assert capacities["nextitem, 2 workers"] == 300
    assert find_best(list_systems(), capacities, "nextitem") == "nextitem, 2 workers"
    assert find_best(list_systems(), capacities, "empty FastAPI") is None
    entry = {"case": CASE._asdict(), "histories": "full", "turns": turns, "summary": summary}
    assert draw_latencies({"cases": [entry, {**entry, "summary": {"rows": []}}]}).startswith(b"\x89PNG")


def test_a_round_without_answers_breaks_nothing():
    """Nothing is divided by it, its times are missing, and all that failed is shown."""
    nothing = {"p50_ms": None, "p90_ms": None, "p99_ms": None, "cpu_us": None, "failed": 7}
    ours = [make_turn("closed", "nextitem, 1 worker", number, 10.0) for number in (0, 1)]
    summary = summarize(
        [*ours, make_turn("closed", "textbook, 1 worker", 0, 5.0), make_turn("closed", "textbook, 1 worker", 1, 0.0)]
    )
    [ratio, _] = summary["comparisons"].values()
    assert (ratio["median"], ratio["rounds"]) == (2.0, 1)
    summary = summarize([{**make_turn("closed", "textbook, 1 worker", 0, 0.0), **nothing}])
    assert summary["comparisons"] == {}
    assert "failed: 7" in format_summary(summary)
    assert find_capacities([*ours, make_turn("closed", "textbook, 1 worker", 0, 0.0)]) == {"nextitem, 1 worker": 10}


def test_events_are_compared_with_their_script():
    """The better number of workers against the script of the same round; alone it is compared with nothing."""
    turns = [
        make_turn("events", name, number, rate)
        for name, rates in {
            "nextitem, 1 worker": (50, 60),
            "nextitem, 2 workers": (70, 20),
            "append.lua alone": (100, 80),
        }.items()
        for number, rate in enumerate(rates)
    ]
    [(words, ratio)] = summarize_events(turns)["comparisons"].items()
    assert words == "nextitem, 1 worker / append.lua alone, events a second"
    assert (ratio["least"], ratio["most"]) == (0.5, 0.75)
    assert summarize_events(turns[-1:])["comparisons"] == {}


def test_one_that_does_not_start_says_why(network, tmp_path):
    """The end of what it wrote is in the error, and nothing of it is left."""
    setting = Setting(network, "unix:///nowhere", find_port(), tmp_path)
    command = [sys.executable, "-c", "raise SystemExit('no port is free')"]
    failing = serve(
        lambda _: command, setting, log=tmp_path / "broken.log", probe=encode_post("/", b"{}"), judge=judge_http(b"")
    )
    with pytest.raises(ServerFailed, match=r"broken does not answer(.|\n)*no port is free"), failing:
        pass


def test_peers_are_pinned():
    """Each framework has the pins of its environment, itself and the runtime among them."""
    for name in PEERS:
        pins = (ROOT / "benchmarks/serving/requirements" / f"{name}.txt").read_text().split()
        assert {pin.partition("==")[0] for pin in pins} >= {name, "onnxruntime", "numpy"}


def run_benchmark(cache, out, *options):
    """The command over CASE, with little to store."""
    words = ["--cases", "12,300,16", "--users", "30", "--cache", cache, "--out", out]
    command = [sys.executable, "-m", "benchmarks.serving", *map(str, words), *options]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # of tests in the background it would be ignored
    try:
        return subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.timeout(900)  # five servers start
def test_the_smallest_run(cache, tmp_path):
    """Everybody's answers are right, every kind of load is measured; table, picture and file are there."""
    out = tmp_path / "serving.json"
    names = ("nextitem", "textbook", "empty ASGI", "ONNX Runtime")
    small = ("--rounds", "1", "--seconds", "0.2", "--histories", "full", "--workers", "1", "--systems", *names)
    with run_benchmark(cache, out, *small) as process:
        said, _ = process.communicate()
    assert process.returncode == 0
    document = json.loads(out.read_text())
    [entry] = document["cases"]
    found = {(turn["load"], turn["contestant"]) for turn in entry["turns"]}
    compared = {"nextitem, 1 worker", "textbook, 1 worker", "empty ASGI, 1 worker", "ONNX Runtime"}
    assert {name for load, name in found if load == "closed"} == compared
    assert {load for load, _ in found} == {"closed", "alone", "open", "batch"}
    assert {turn["contestant"] for turn in document["events"]["turns"]} == {"append.lua alone", "nextitem, 1 worker"}
    assert all(row["rate"]["least"] > 0 for row in entry["summary"]["rows"] if row["contestant"] == "ONNX Runtime")
    assert "nextitem" in said
    assert "answers a second" in said
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(900)
def test_ctrl_c_leaves_nothing_behind(cache, tmp_path):
    """In the middle of a turn: status 130, what was measured is kept, and every process has ended."""
    out = tmp_path / "serving.json"
    endless = ("--rounds", "9999", "--seconds", "0.2", "--loads", "closed", "--workers", "2")
    with run_benchmark(cache, out, *endless, "--contestants", "nextitem", "textbook") as process:
        while not out.exists() or not json.loads(out.read_text())["cases"]:
            assert process.poll() is None
            time.sleep(0.05)
        family = list_family(process.pid)
        assert len(family) > 5
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    assert json.loads(out.read_text())["cases"][0]["turns"]
    assert not [member for member in family if Path(f"/proc/{member}/exe").exists()]
