"""nextitem-serve as a process: how it starts, how it ends, and what it leaves behind."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from service.cli import main
from service.system.parent_death import POLL_S
from service.telemetry.multiprocess import PREFIX, make_metrics_folder

COUNTED = 'nextitem_recommendations_total{{source="model",variant="champion",version="20261121T101500-tiny"}} {}.0'


def await_metrics(process, *lines):
    """Wait until both workers have settled what they counted."""
    deadline = time.monotonic() + 120
    while not all(line in httpx.get(f"{process.url}/metrics").text for line in lines):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def run_to_end(capsys):
    """The command in this process, which takes back what it changes: status and stderr of a start that must fail."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]

    def run(*arguments):
        try:
            status: object = main([*map(str, arguments)])
        except SystemExit as ended:
            status = ended.code
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
        stdout, stderr = capsys.readouterr()
        assert stdout == ""
        return status, stderr

    return run


def refusals(stderr):
    """The lines on stderr that are not the log."""
    return [line for line in stderr.splitlines() if not line.startswith("{")]


def wait_until_ok(http):
    """Until it is ready without reserve: on a busy machine the store may miss a quarter of a second at first."""
    deadline = time.monotonic() + 60
    while (said := http.get("/health/ready").json()) != {"status": "ok", "reasons": []}:
        assert time.monotonic() < deadline, said


@pytest.mark.parametrize(
    ("workers", "number"), [(1, signal.SIGTERM), (1, signal.SIGINT), (2, signal.SIGTERM), (2, signal.SIGINT)]
)
def test_told_to_stop_it_ends_in_order(start_process, wait_until_gone, list_complaints, workers, number):
    """Status 0, every request answered until then, no process and no traceback left."""
    process = start_process("--workers", str(workers), embedded=True)
    assert re.fullmatch(
        r"Serving tiny \S+ on CPUExecutionProvider at http://127\.0\.0\.1:\d+, store embedded in \S+/data, "
        r"workers: \d, keys: none, for this machine only",
        process.started,
    )
    with httpx.Client(base_url=process.url) as http:
        wait_until_ok(http)
        response = http.post("/recommend", json={"user_id": "u", "items": ["i01"]})
        assert (response.status_code, response.json()["source"]) == (200, "model")
        assert "server" not in response.headers
        family = process.family()
        assert len(family) >= 2 + (workers if workers > 1 else 0)
        process.signal(number)
        assert process.wait() == 0
    assert wait_until_gone(family) == set()
    assert list_complaints(process) == []


def test_ctrl_c_in_a_terminal_reaches_all_and_ends_in_order(start_process, wait_until_gone, list_complaints):
    """The whole process group gets SIGINT at once: still status 0, and the store was stopped last."""
    process = start_process("--workers", "2", embedded=True)
    family = process.family()
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == 0
    assert wait_until_gone(family) == set()
    assert list_complaints(process) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_it_leaves_nothing_and_loses_nothing(start_process, wait_until_gone, workers):
    """Kill -9 of the parent ends workers and store within seconds; a restart has every acknowledged event."""
    process = start_process("--workers", str(workers), embedded=True)
    with httpx.Client(base_url=process.url) as http:
        acknowledged = sum(
            http.post("/events", json={"user_id": "u", "item_id": "i01", "event_id": f"e{number}"}).json()["accepted"]
            for number in range(50)
        )
        family = process.family()
    process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert wait_until_gone(family, seconds=60 + POLL_S) == set()
    again = start_process("--workers", str(workers), embedded=True)
    export = httpx.get(f"{again.url}/users/u/history").json()
    assert (acknowledged, export["version"], len(export["events"])) == (50, 50, 50)
    assert len(list(again.temporary.glob(f"{PREFIX}*"))) == (workers > 1)  # that of the killed one is removed


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_store_ends_the_service(start_process, wait_until_gone, workers):
    """Kill -9 of the store is one critical line and status 1, within seconds; a restart has every event."""
    process = start_process("--workers", str(workers), embedded=True)
    assert httpx.post(f"{process.url}/events", json={"user_id": "u", "item_id": "i01"}).json()["accepted"] == 1
    family = process.family()
    [store] = [pid for pid in family if "valkey-server" in (Path("/proc") / str(pid) / "cmdline").read_text()]
    os.kill(store, signal.SIGKILL)
    assert process.wait() == 1
    assert wait_until_gone(family) == set()
    [line] = [entry for entry in process.log if entry["level"] == "critical"]
    assert line["message"].startswith("The embedded store was killed by signal 9: stopping the service.")
    again = start_process("--workers", str(workers), embedded=True)
    assert httpx.get(f"{again.url}/users/u/history").json()["version"] == 1


@pytest.mark.parametrize("published", ["another", "corrupt"])
def test_replaced_workers_serve_what_the_others_serve(start_process, wait_until_gone, bundle_path, tmp_path, published):
    """Of a service that follows nothing: what is published meanwhile waits, so that no two workers differ."""
    root = tmp_path / "bundles"
    shutil.copytree(bundle_path, root)
    version = (root / "current").read_text().strip()
    process = start_process("--workers", "2", "--bundle", str(root), "--follow-s", "0")
    shutil.copytree(root / version, root / "another")
    manifest = root / "another" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(version, "another"))
    (root / "current").write_text("another" if published == "another" else "../nowhere")
    before = process.family()
    workers = [pid for pid in before if "spawn_main" in (Path("/proc") / str(pid) / "cmdline").read_text()]
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    assert wait_until_gone(set(workers)) == set()  # a dying one would take the request with it
    # Whoever answers now has replaced one of them: the socket is the parent's and keeps the request until then.
    answer = httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}, timeout=20).json()
    assert answer["model"]["version"] == version
    assert len(process.family() - before) >= 1
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_metrics_folder_of_a_killed_service_is_removed(start_process, monkeypatch):
    """What a kill -9 leaves is removed by the next start, and a folder in use is not."""
    process = start_process("--workers", "2")
    [folder] = process.temporary.glob(f"{PREFIX}*")
    monkeypatch.setattr("tempfile.tempdir", str(process.temporary))
    with make_metrics_folder():  # as a start does it
        assert folder.exists()
        process.signal(signal.SIGKILL)
        process.wait()
        assert folder.exists()
        with make_metrics_folder():
            assert not folder.exists()
            assert len(list(process.temporary.glob(f"{PREFIX}*"))) == 2


def test_killed_worker_is_replaced(start_process, wait_until_gone):
    """One worker less is noticed, logged, and made good; what it counted still counts."""
    process = start_process("--workers", "2")
    asked = 10
    for _ in range(asked):
        assert httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}).status_code == 200
    await_metrics(process, COUNTED.format(asked))  # a kill loses what is not settled
    before = process.family()
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in before}
    worker = next(pid for pid, command in commands.items() if "spawn_main" in command)
    os.kill(worker, signal.SIGKILL)
    assert wait_until_gone({worker}) == set()
    deadline = time.monotonic() + 120
    while not (process.family() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert process.family() - before
    assert httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}).status_code == 200
    await_metrics(process, COUNTED.format(asked + 1))
    while [file for file in process.metrics_files() if file.stem.endswith(f"_{worker}")]:  # once its heir is started
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert [entry["worker"] for entry in process.log if entry["level"] == "error"] == [worker]


def test_requests_under_way_are_finished(start_process):
    """A request whose body is still on its way when SIGTERM comes is answered."""
    process = start_process()
    host, port = process.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        body = b'{"items":["i01"]}'
        head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
        time.sleep(0.2)
        process.signal(signal.SIGTERM)
        time.sleep(0.3)
        connection.sendall(body[5:])
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK")
    assert process.wait() == 0


def test_through_a_real_server(start_process):
    """Encoded paths, large bodies and broken ones fare over a socket as they do inside; the connection goes on."""
    process = start_process()
    with httpx.Client(base_url=process.url) as http:
        http.post("/events", json={"user_id": "a/b%", "item_id": "100%"})
        assert http.get("/users/a%2Fb%25/history").json()["events"][0]["item_id"] == "100%"
        assert http.get("/items/100%25").json()["item_id"] == "100%"
        for content in (b"[" * 3_000_000, (b"[" * 100_000 for _ in range(30))):
            refused = http.post("/events", content=content, headers={"content-type": "application/json"})
            assert (refused.status_code, refused.json()["status"]) == (413, 413)
        assert http.get("/nothing").json()["type"] == "urn:nextitem:problem:not-found"
        assert http.post("/recommend", json={"items": ["i01"]}).json()["source"] == "model"


def test_metrics_of_two_workers_add_up(start_process):
    """Whichever worker is asked tells of both: counts are those of the traffic, and the model is one."""
    process = start_process("--workers", "2")
    threads = [
        threading.Thread(
            target=lambda: [httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}) for _ in range(10)]
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    httpx.post(f"{process.url}/events", json={"user_id": "u", "item_id": "i01"})
    await_metrics(process, COUNTED.format(40), 'nextitem_events_total{result="accepted",type="view"} 1.0')
    for _ in range(3):
        text = httpx.get(f"{process.url}/metrics").text
        assert COUNTED.format(40) in text
        assert 'nextitem_events_total{result="accepted",type="view"} 1.0' in text
        assert 'nextitem_events_total{result="accepted",type="cart"} 0.0' in text
        assert re.findall(r"nextitem_model_info\{.*\} (.*)", text) == ["1.0"]
        assert "nextitem_queue_depth 0.0" in text
        assert "pid=" not in text
    samples = dict(line.split() for line in text.splitlines() if line.startswith("nextitem_process_"))
    sizes = [int((Path("/proc") / str(pid) / "statm").read_text().split()[1]) for pid in process.workers()]
    shown = float(samples["nextitem_process_resident_memory_bytes"]) / resource.getpagesize()
    assert 0.5 * sum(sizes) < shown < 1.5 * sum(sizes)
    assert float(samples["nextitem_process_cpu_seconds_total"]) > 0.1


def test_rolling_restart_leaves_no_files(start_process):
    """SIGHUP, uvicorn's rolling restart: all workers are others, counts go on, no file of the old ones is left."""
    process = start_process("--workers", "2")
    assert httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}).status_code == 200
    before = {file.stem.rpartition("_")[2] for file in process.metrics_files()} - {str(process.pid)}
    process.signal(signal.SIGHUP)
    deadline = time.monotonic() + 120
    while before & (now := {file.stem.rpartition("_")[2] for file in process.metrics_files()}):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(now) <= 4  # two workers, their supervisor, and the dead
    assert 'nextitem_recommendations_total{source="model",variant="champion",version="20261121T101500-tiny"} 1.0' in (
        httpx.get(f"{process.url}/metrics").text
    )
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_second_service_on_one_port(start_process, run_to_end, bundle_path, tmp_path, monkeypatch):
    """A port in use is one sentence, and status 1."""
    monkeypatch.setattr("service.cli.BIND_PATIENCE_S", 0.1)
    port = start_process().url.rpartition(":")[2]
    for workers in (1, 2):
        status, stderr = run_to_end(
            "--bundle", bundle_path, "--data-dir", tmp_path / "other", "--port", port, "--workers", workers
        )
        assert status == 1
        assert refusals(stderr) == [f"nextitem-serve: cannot listen on 127.0.0.1 port {port}: Address already in use"]


def test_strangers_are_not_let_in_unasked(start_process, run_to_end, bundle_path, tmp_path):
    """Without keys, other addresses than this machine's own need to be asked for, and the log warns."""
    arguments = ("--bundle", bundle_path, "--data-dir", tmp_path / "other", "--port", 0)
    for host in ("0.0.0.0", "::", "192.0.2.1", "some.name", "0"):  # noqa: S104
        status, stderr = run_to_end(*arguments, "--host", host)
        [line] = refusals(stderr)
        assert status == 2
        assert "create keys with `nextitem-serve keys create` and give --keys-file" in line
    status, stderr = run_to_end(*arguments, "--host", "0.0.0.0", "--keys-file", tmp_path / "none")  # noqa: S104
    assert (status, "none does not exist: create it with `nextitem-serve keys create`" in stderr) == (1, True)
    process = start_process("--host", "0.0.0.0", "--allow-anonymous")  # noqa: S104
    assert process.started.endswith("keys: none, open to everybody")
    assert [entry["level"] for entry in process.log].count("warning") == 1
    assert httpx.get(process.url.replace("0.0.0.0", "127.0.0.1") + "/docs").status_code == 404  # noqa: S104


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_host_that_is_no_name(run_to_end, bundle_path, tmp_path, host):
    """A host name that cannot even be looked up is one sentence, and status 1."""
    status, stderr = run_to_end(
        "--bundle", bundle_path, "--data-dir", tmp_path / "data", "--host", host, "--port", 0, "--allow-anonymous"
    )
    assert status == 1
    assert refusals(stderr) == [f"nextitem-serve: cannot listen on {host} port 0: this is not a host name"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("url", ["redis://c4n4ry:port", "redis://localhost?c4n4ry=1"])
def test_store_url_that_cannot_be_used(run_to_end, bundle_path, workers, url):
    """A store's URL that no worker could use is one sentence and status 1 before any is started, or logs a word."""
    status, stderr = run_to_end("--bundle", bundle_path, "--redis-url", url, "--port", 0, "--workers", workers)
    [line] = stderr.splitlines()
    assert status == 1
    assert line.startswith("nextitem-serve: the store's URL must begin with redis://")
    assert "c4n4ry" not in stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_bundle_that_cannot_be_used(run_to_end, broken_bundle, tmp_path, workers):
    """A corrupt or missing bundle is one sentence and status 1, before a store is started."""
    corrupt = broken_bundle("network.onnx", b"changed", sealed=False)
    for bundle, said in ((corrupt, "network.onnx has 7 bytes"), (tmp_path, "publish a bundle there first")):
        data_dir = tmp_path / "data"
        status, stderr = run_to_end("--bundle", bundle, "--data-dir", data_dir, "--port", 0, "--workers", workers)
        [line] = refusals(stderr)
        assert status == 1
        assert line.startswith("nextitem-serve: the bundle cannot be used")
        assert said in line
        assert not data_dir.exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_cuda_where_there_is_none(run_to_end, bundle_path, tmp_path, workers, monkeypatch):
    """`--provider cuda` does not start on the CPU."""
    arguments = ("--bundle", bundle_path, "--data-dir", tmp_path / "data", "--port", 0, "--workers", workers)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    status, stderr = run_to_end(*arguments, "--provider", "cuda")
    [line] = refusals(stderr)
    assert status == 1
    assert line.startswith("nextitem-serve: --provider cuda")


def test_data_folder_that_cannot_be_used(bundle_path, tmp_path):
    """A store that cannot start is one sentence that names the folder, and the process ends with status 1."""
    (tmp_path / "file").touch()
    words = ["--bundle", bundle_path, "--data-dir", tmp_path / "file", "--port", "0"]
    command = [sys.executable, "-m", "service.cli", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    [line] = refusals(ended.stderr)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert line.startswith("nextitem-serve: the embedded store")
    assert str(tmp_path / "file") in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--bundle (NEXTITEM_BUNDLE): Field required"),
        (["--bundle", "b", "--port", "70000"], "--port (NEXTITEM_PORT): Input should be less than or equal to 65535"),
        (
            ["--bundle", "b", "--redis-url", "http://c4n4ry"],
            "--redis-url (NEXTITEM_REDIS_URL): must begin with redis://",
        ),
        (["--bundle", "b", "--event-types", "click"], "'view' must be one of them"),
        (["--bundle", "b", "--keys-file", "k", "--allow-anonymous"], "contradict each other"),
        (["--bundle", "b", "--docs", "yes"], "unrecognized arguments"),
        (["--bundle", "b", "--timeout-ms", "5"], "unrecognized arguments"),
        (["--bundle", "b", "--work", "2"], "unrecognized arguments"),
    ],
)
def test_wrong_calls(run_to_end, arguments, said):
    """Status 2 and a sentence that names the option; values are not repeated, since one may hold a password."""
    status, stderr = run_to_end(*arguments)
    assert status == 2
    assert said in stderr
    assert "c4n4ry" not in stderr
    assert "Traceback" not in stderr


def test_password_of_the_store_is_not_logged(start_process):
    """The start line names the store without its password."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"redis://admin:c4n4ry@127.0.0.1:{nobody.getsockname()[1]}/0"
        process = start_process("--redis-url", url)
        assert httpx.post(f"{process.url}/recommend", json={"user_id": "u"}).json()["degraded"] == "store_unavailable"
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert "store redis://127.0.0.1:" in process.started
    assert "c4n4ry" not in str(process.log)


def test_ids_and_bodies_are_not_logged(start_process):
    """Whatever happens to a request, the log does not repeat it, at its most talkative either."""
    process = start_process("--log-level", "debug")
    with httpx.Client(base_url=process.url) as http:
        http.post("/events", json={"user_id": "c4n4ry", "item_id": "c4n4ry"})
        http.post("/recommend", json={"user_id": "c4n4ry"})
        http.get("/users/c4n4ry/history")
        http.get("/c4n4ry?c4n4ry")
        http.post("/events", content=b'{"c4n4ry', headers={"content-type": "application/json"})
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert "c4n4ry" not in str(process.log)


def test_app_needs_neither_torch_nor_onnx():
    """Importing the service in a fresh interpreter loads no torch, no onnx, no trainer, and starts no thread.

    Nor does the command itself load what the archiver, which is the same command, does without.
    """
    script = (
        "import sys, threading, service.cli\n"
        "assert not sys.modules.keys() & {'numpy', 'fastapi', 'uvicorn', 'onnxruntime'}\n"
        "import service.app, service.process.launcher\n"
        "rooms = {name.split('.')[0] for name in sys.modules}\n"
        "assert not rooms & {'torch', 'onnx', 'training', 'polars', 'onnxscript', 'safetensors'}, rooms\n"
        "assert 'model.nets' not in sys.modules and 'model.export.graph' not in sys.modules\n"
        "assert threading.active_count() == 1\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
