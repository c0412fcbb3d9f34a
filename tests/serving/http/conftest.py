"""The service in this process over a real embedded store, and the service as a process of its own."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import httpx
import numpy as np
import pytest
import uvloop
from redis import Redis

from benchmarks.harness.bundles import seal
from benchmarks.harness.processes import read_url
from model.contract.attributes import gather_attributes
from model.contract.bundle import (
    ATTRIBUTES,
    MANIFEST,
    METADATA,
    RULES,
    SESSIONS,
    describe_file,
    locate_bundle,
    read_bundle,
)
from model.contract.bundle_content import encode_metadata
from model.contract.rules import Rules
from model.contract.sessions import Sessions
from service.app import Application, create_app
from service.embedded.server import EmbeddedStore
from service.http.dependencies import Service
from service.settings import Settings
from service.telemetry.multiprocess import PREFIX

BUNDLE = Path(__file__).parent.parent / "bundle"


class Client:
    """A synchronous client of an app that runs, lifespan included, on a loop of its own."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)  # as the service has it
        self._lifespan = app.framework.router.lifespan_context(app.framework)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")
        self._runner.run(self._lifespan.__aenter__())

    @property
    def service(self) -> Service:
        """What the app is wired of."""
        return self.app.service

    def run(self, awaitable: Awaitable):
        """Wait for something on the app's loop."""

        async def wait():
            return await awaitable

        return self._runner.run(wait())

    def request(self, method: str, path: str, **options) -> httpx.Response:
        """One request."""
        return self.run(self.http.request(method, path, **options))

    def get(self, path: str, **options) -> httpx.Response:
        """One GET request."""
        return self.request("GET", path, **options)

    def post(self, path: str, document: object = None, **options) -> httpx.Response:
        """One POST request, of a JSON document where one is given."""
        if document is not None:
            options["json"] = document
        return self.request("POST", path, **options)

    def recommend(self, **fields) -> dict:
        """The answer of POST /recommend, which must be 200; patient, since machines may be slow."""
        response = self.post("/recommend", {"timeout_ms": 2000, **fields})
        assert response.status_code == 200, response.text
        return response.json()

    def send(self, *events: dict) -> dict:
        """The receipt of POST /events, which must be 200."""
        response = self.post("/events", {"events": list(events)})
        assert response.status_code == 200, response.text
        return response.json()

    def counts(self) -> dict[str, float]:
        """Every sample of /metrics by its name and labels."""
        lines = self.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}

    def close(self) -> None:
        self.run(self.http.aclose())
        self._runner.run(self._lifespan.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="session")
def bundle_path() -> Path:
    """The tiny bundle, by the folder whose `current` names it."""
    return BUNDLE


@pytest.fixture(scope="session")
def service_store(short_folder: Path) -> Iterator[EmbeddedStore]:
    """The store of every service in these tests that is given no other."""
    with EmbeddedStore(short_folder / "service") as store:
        yield store


@pytest.fixture
def make_client(service_store: EmbeddedStore) -> Iterator[Callable[..., Client]]:
    """Clients of services of their own; settings as keywords."""
    clients: list[Client] = []

    def make(**settings) -> Client:
        given = {"bundle": BUNDLE, "redis_url": service_store.url} | settings
        client = Client(create_app(Settings.model_validate(given)))
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def client(service_store: EmbeddedStore) -> Iterator[Client]:
    """One service for all tests that leave it as it is."""
    client = Client(create_app(Settings(bundle=BUNDLE, redis_url=service_store.url)))
    yield client
    client.close()


@pytest.fixture(scope="session")
def similar_client(service_store: EmbeddedStore, similar_bundle: Path) -> Iterator[Client]:
    """Another, whose bundle has a graph of similar items."""
    client = Client(create_app(Settings(bundle=similar_bundle, redis_url=service_store.url)))
    yield client
    client.close()


@pytest.fixture(scope="session")
def list_complaints() -> Callable[..., list]:
    """What a process's log complains of, but for a store that a busy machine made slow: that is another promise."""

    def complaints(process: "Process") -> list:
        return [
            entry
            for entry in process.log
            if entry["level"] not in ("info", "debug") and not entry["logger"].startswith("service.store.")
        ]

    return complaints


@pytest.fixture(scope="session")
def ask_in_time() -> Callable[..., list]:
    """Ask until an answer comes in time; all answers, and only a service that is always late fails.

    A busy machine makes any single answer late.
    """

    def ask(question: Callable[[], object], *, within_s: float, tries: int = 20) -> list:
        answers: list[object] = []
        took_s: list[float] = []
        while len(took_s) < tries:
            began_s = time.perf_counter()
            answers.append(question())
            took_s.append(time.perf_counter() - began_s)
            if took_s[-1] < within_s:
                return answers
        pytest.fail(f"no answer within {within_s} s: {took_s}")

    return ask


@pytest.fixture(scope="session")
def filterable_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with metadata of every kind that items can be filtered by, with neighbours and with rules."""
    root = shutil.copytree(BUNDLE, tmp_path_factory.mktemp("filterable") / "bundles")
    folder = locate_bundle(root)
    vocabulary = read_bundle(root).vocabulary
    known = {item_id: _describe_item(number) for number, item_id in enumerate(vocabulary.item_ids)}
    sessions = Sessions(
        item_count=20,
        starts=np.array([0, 6, 12]),
        items=np.array([1, 7, 8, 11, 12, 19, 2, 5, 7, 9, 13, 20], dtype=np.int32),
        moments=np.zeros(2, dtype=np.int64),
    )
    (folder / METADATA).write_bytes(encode_metadata(vocabulary, known))
    (folder / ATTRIBUTES).write_bytes(gather_attributes(vocabulary, known).to_bytes())
    (folder / SESSIONS).write_bytes(sessions.to_bytes())
    (folder / RULES).write_bytes(make_rules(20).to_bytes())
    names = json.loads((folder / MANIFEST).read_bytes())["files"]
    seal(folder, files=dict.fromkeys([*names, ATTRIBUTES, RULES, SESSIONS]))
    return root


def make_rules(item_count: int) -> Rules:
    """Four followers of each item, the nearest by index the weightiest."""
    followers = np.concatenate(
        [(np.array([1, 4, 7, 11]) + item - 1) % item_count + 1 for item in range(1, item_count + 1)]
    )
    weights = np.tile(np.array([1.5, 1, 0.5, 0.25], dtype=np.float32), item_count)
    return Rules(
        starts=np.append(0, np.arange(0, 4 * item_count + 1, 4)), followers=followers.astype(np.int32), weights=weights
    )


def _describe_item(number: int) -> dict[str, object]:
    genres = [genre for bit, genre in enumerate(("Drama", "Comedy", "War")) if number >> bit & 1]
    known: dict[str, object] = {"title": f"Title {number}", "genres": genres, "new": number % 2 == 0}
    if number % 5:
        known["year"] = 1990 + number
    if number % 4 == 0:
        known["sizes"] = [number, number / 2]
    return known


@pytest.fixture(scope="session")
def filtering(service_store: EmbeddedStore, filterable_bundle: Path) -> Iterator[Client]:
    """One service of the filterable bundle, for all tests that leave it as it is."""
    client = Client(create_app(Settings(bundle=filterable_bundle, redis_url=service_store.url)))
    yield client
    client.close()


@pytest.fixture(scope="session")
def known(filterable_bundle: Path) -> dict[str, dict]:
    """What is known of each item of the filterable bundle, by id."""
    bundle = read_bundle(filterable_bundle)
    assert bundle.metadata is not None
    return dict(zip(bundle.vocabulary.item_ids, map(json.loads, bundle.metadata), strict=True))


@pytest.fixture(scope="module")
def own_store(short_folder: Path) -> Iterator[EmbeddedStore]:
    """A store for the tests of one file alone: a catalogue is that of a whole store."""
    with tempfile.TemporaryDirectory(dir=short_folder) as folder, EmbeddedStore(Path(folder)) as store:
        yield store


@pytest.fixture
def make_shop(make_client: Callable[..., Client], own_store: EmbeddedStore) -> Callable[..., Client]:
    """Empty that store and start a service over it; settings as keywords."""

    def make(**settings) -> Client:
        with Redis.from_url(own_store.url) as client:
            client.flushall()
        return make_client(redis_url=own_store.url, **settings)

    return make


@pytest.fixture
def shop(make_shop: Callable[..., Client], filterable_bundle: Path) -> Client:
    """A service of the filterable bundle, and an empty catalogue."""
    return make_shop(bundle=filterable_bundle)


@pytest.fixture
def user() -> str:
    """A user nobody has heard of."""
    return f"u-{uuid4()}"


@pytest.fixture
def broken_bundle(tmp_path: Path) -> Callable[..., Path]:
    """Copies of the bundle with one file changed, and its manifest changed to match unless `sealed` is false."""

    def make(name: str, content: bytes, *, sealed: bool = True, **fields) -> Path:
        folder = tmp_path / f"bundle-{uuid4()}"
        shutil.copytree(locate_bundle(BUNDLE), folder)
        if name:
            (folder / name).write_bytes(content)
        manifest = json.loads((folder / "manifest.json").read_bytes()) | fields
        if sealed and name:
            described = describe_file(content)
            manifest["files"][name] = {"sha256": described.sha256, "bytes": described.bytes}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make


class Process:
    """nextitem-serve as a process of its own; its log is read from stderr as it comes.

    Once it serves, each run of its model takes `run_s` seconds longer: the check of the model at the start does not.
    """

    def __init__(self, store: Sequence[str], *options: str, environment: dict[str, str], run_s: float = 0.0) -> None:
        fault_file = Path(environment["TMPDIR"]) / f"fault-{uuid4()}"
        module = ["benchmarks.harness.faulty_engine", "--fault-file", str(fault_file)] if run_s else ["service.cli"]
        command = [sys.executable, "-m", *module, "--bundle", str(BUNDLE), "--port", "0"]
        command += ["--drain-delay-s", "0"]  # there is no proxy that would have to notice
        self.log: list[dict] = []
        self._process = subprocess.Popen(
            [*command, *store, *options],
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
            text=True,
        )
        assert self._process.stderr
        self._stderr = self._process.stderr
        for line in self._stderr:
            self.log.append(json.loads(line))
            if url := read_url(self.log[-1]["message"]):
                self.url = url
                break
        else:
            raise AssertionError(f"the service did not start: {self.log}")
        if run_s:
            fault_file.write_text(f"slow {run_s}")
        self.temporary = Path(environment["TMPDIR"])
        self.started = self.log[-1]["message"]
        self._reader = ThreadPoolExecutor(1)
        self._rest = self._reader.submit(self._stderr.read)

    @property
    def pid(self) -> int:
        return self._process.pid

    def family(self) -> set[int]:
        """The process ids of the service and everything that it started."""
        found, grew = {self.pid}, True
        while grew:
            parents = dict(filter(None, map(_read_parent, Path("/proc").glob("[0-9]*"))))
            grown = found | {pid for pid, parent in parents.items() if parent in found}
            grew, found = grown != found, grown
        return found

    def workers(self) -> set[int]:
        """The process ids of its workers, where there are several."""
        commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in self.family()}
        return {pid for pid, file in commands.items() if file.exists() and "spawn_main" in file.read_text()}

    def metrics_files(self) -> list[Path]:
        """The files through which its workers share their metrics."""
        return list(self.temporary.glob(f"{PREFIX}*/*.db"))

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        status = self._process.wait(timeout=120)
        lines = self._rest.result(timeout=120).splitlines()
        if status == -signal.SIGKILL:  # what its orphans say as they end is no log
            lines = [line for line in lines if line.startswith("{")]
        self.log += map(json.loads, lines)
        self._reader.shutdown()
        self._stderr.close()
        return status

    def close(self) -> None:
        """End it if it has not ended."""
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
            self.wait()


@pytest.fixture
def start_process(tmp_path: Path, service_store: EmbeddedStore) -> Iterator[Callable[..., Process]]:
    """Services as processes over the store that all share, which saves a server and an archiver; ended after the test.

    With `embedded` they are over a store of their own, in one data folder. With one worker, runs of its model can be
    made to take `run_s` seconds longer.
    """
    processes: list[Process] = []
    # A kill -9 leaves empty folders there; tmp_path itself is too long for sockets.
    with tempfile.TemporaryDirectory(prefix="serve-") as folder:

        def start(*options: str, embedded: bool = False, run_s: float = 0.0) -> Process:
            store = ("--data-dir", str(tmp_path / "data")) if embedded else ("--redis-url", service_store.url)
            processes.append(Process(store, *options, environment={"TMPDIR": folder}, run_s=run_s))
            return processes[-1]

        yield start
        for process in processes:
            process.close()


HOOKS = """
import pathlib, signal, time
signal.signal(signal.SIGRTMIN, lambda *_: time.sleep(3600))
slow = pathlib.Path(__file__).with_name("load_s")
if slow.exists():
    seconds = float(slow.read_text())
    from service.inference import model
    load = model.load_model
    def load_slowly(*given, **named):
        time.sleep(seconds)
        return load(*given, **named)
    model.load_model = load_slowly
held = pathlib.Path(__file__).with_name("held_s")
if held.exists():
    from service.system import pauses
    class Held(pauses.GilWatch):
        def __exit__(self, *given):
            super().__exit__(*given)
            self.longest_s = float(held.read_text())
    pauses.GilWatch = Held
"""
"""What processes run first: SIGRTMIN makes an event loop hang, and models take as long to load as a file says.

In a probe a load seems to hold the GIL for as long as another file says.
"""


@pytest.fixture
def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Processes that are started now have the hooks, which lie in this folder."""
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HOOKS)
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), before))))
    return folder


@pytest.fixture(scope="module")
def start_once(
    service_store: EmbeddedStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Process]]:
    """A service as a process, over the store that all share, for all tests of a file that leave it as it is.

    With `embedded` it is over a store of its own: a catalogue is that of a whole store.
    """
    with tempfile.TemporaryDirectory(prefix="serve-") as folder, ExitStack() as stack:

        def start(*options: str, embedded: bool = False) -> Process:
            own = ("--data-dir", str(tmp_path_factory.mktemp("once")))
            store = own if embedded else ("--redis-url", service_store.url)
            process = Process(store, *options, environment={"TMPDIR": folder})
            stack.callback(process.close)
            return process

        yield start


@pytest.fixture(scope="session")
def wait_until_gone() -> Callable[[set[int]], set[int]]:
    """Wait for processes to end; returns those that have not after some seconds."""

    def wait(pids: set[int], *, seconds: float = 60) -> set[int]:
        deadline = time.monotonic() + seconds
        while (left := {pid for pid in pids if _runs(pid)}) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    return wait


def _read_parent(folder: Path) -> tuple[int, int] | None:
    try:
        return int(folder.name), int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _runs(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
