"""What the service's tests share: a clock moved by hand, and stores, the embedded Valkey and a Redis 7 from PATH."""

import json
import logging
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from benchmarks.harness.bundles import seal
from model.contract.bundle import MANIFEST, Bundle, locate_bundle, read_bundle
from service.embedded import loss_detection
from service.embedded.server import EmbeddedStore
from service.inference.engine import Engine, open_engine
from service.store.event import Event, make_event

NOW_MS = 1_763_719_498_123


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 5000.0

    def __call__(self) -> float:
        """Its time."""
        return self.now_s


@pytest.fixture(scope="session")
def make_clock() -> type[Clock]:
    """A maker of clocks."""
    return Clock


@pytest.fixture
def clock(make_clock: type[Clock]) -> Clock:
    """The time of a test."""
    return make_clock()


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """A command that a test runs in this process sets up the log of the whole process: it is taken back."""
    loggers = [logging.getLogger(name) for name in (None, "uvicorn", "uvicorn.error", "asyncio")]
    levels = [logger.level for logger in loggers]
    handlers = loggers[0].handlers[:]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for added in {*loggers[0].handlers} - {*handlers}:
        loggers[0].removeHandler(added)


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    """The tiny bundle."""
    return read_bundle(Path(__file__).parent / "bundle")


@pytest.fixture(scope="session")
def similar_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with a graph of similar items: its folder."""
    here, folder = Path(__file__).parent, tmp_path_factory.mktemp("similar") / "bundle"
    shutil.copytree(locate_bundle(here / "bundle"), folder)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    for file in (here / "similar").iterdir():
        shutil.copy(file, folder)
        manifest["files"][file.name] = {}
    seal(folder, files=manifest["files"])
    return folder


@pytest.fixture(scope="session")
def engine(bundle: Bundle) -> Engine:
    """Its engine on the CPU."""
    return open_engine(bundle.network, item_count=bundle.manifest.item_count, provider="cpu", threads=1)


@pytest.fixture(scope="session")
def embedded_valkey(short_folder: Path) -> Iterator[str]:
    """The URL of an embedded store that lives as long as the session, and takes it for no loss to be emptied."""
    with pytest.MonkeyPatch.context() as patch, EmbeddedStore(short_folder / "valkey") as store:
        patch.setattr(loss_detection, "COUNT_EVERY_S", math.inf)
        yield store.url


@pytest.fixture(scope="session")
def redis_seven(short_folder: Path, require_tool: Callable[[str], str], run_store: Callable[..., Any]) -> Iterator[str]:
    """The URL of a Redis 7 that answers after fsync, on a unix socket only."""
    data_dir = short_folder / "redis"
    data_dir.mkdir()
    socket = data_dir / "redis.sock"
    options = f"--port 0 --unixsocket {socket} --dir {data_dir} --appendonly yes --appendfsync always".split()
    options += ["--save", "", "--logfile", str(data_dir / "redis.log")]
    with run_store([require_tool("redis-server"), *options], socket):
        yield f"unix://{socket}"


@pytest.fixture(params=["embedded_valkey", "redis_seven"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store: each test runs over both servers."""
    url: str = request.getfixturevalue(request.param)
    with Redis.from_url(url) as client:
        client.flushall()
        client.script_flush()
    return url


@pytest.fixture
def raw(store_url: str) -> Iterator[Redis]:
    """A plain client of the same server, to look behind the port and to break things."""
    with Redis.from_url(store_url) as client:
        yield client


@pytest.fixture
def in_store(store_url: str, run_scenario: Callable[..., Any]) -> Callable[..., Any]:
    """Run a scenario, an async function of a HistoryStore with the given options, in a loop of its own."""
    patient = {"read_timeout_s": 10.0, "write_timeout_s": 10.0}  # a busy machine is no outage
    return lambda scenario, **options: run_scenario(scenario, url=store_url, **(patient | options))


@pytest.fixture
def event() -> Callable[..., Event]:
    """Make an event of u1 on i1 at NOW_MS, with whatever is given instead."""

    def make(**given: Any) -> Event:
        return make_event(**{"user_id": "u1", "item_id": "i1", "event_type": "view", "now_ms": NOW_MS, **given})

    return make


@pytest.fixture
def settings(raw: Redis) -> Iterator[Callable[..., None]]:
    """Set settings of the server, which are put back at the end."""
    before: dict[str, str] = {}

    def change(**values: str | float) -> None:
        for name, value in values.items():
            setting = name.replace("_", "-")
            before.setdefault(setting, raw.config_get(setting)[setting] or "")
            raw.config_set(setting, value)

    yield change
    for name, value in before.items():
        raw.config_set(name, value)


@pytest.fixture
def account(raw: Redis) -> Iterator[str]:
    """A user of the store with a password, who may do everything but read the configuration."""
    raw.acl_setuser("limited", enabled=True, passwords=["+first"], keys=["*"], commands=["+@all", "-config"])
    yield "limited"
    raw.acl_deluser("limited")
