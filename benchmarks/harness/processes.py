"""The store and the service as processes that may be killed, frozen, cut from power and started again."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from benchmarks.harness.powercut import PowerCut
from service.system import parent_death

SAFE_OPTIONS: Final[Mapping[str, str]] = {"appendonly": "yes", "appendfsync": "always", "save": ""}

_START_LIMIT_S = 60
_SERVING = re.compile(r"Serving .* at (https?://[^,]+), store ")


class StoreProcess:
    """A Redis or Valkey server on one unix socket and one data folder, whatever happens to it."""

    def __init__(self, binary: Path, folder: Path, *, library: Path, options: Mapping[str, str] = SAFE_OPTIONS) -> None:
        """Take a folder with a path short enough for sockets, and the library of powercut.py."""
        self._folder = folder
        self._data_dir = folder / "data"
        self._data_dir.mkdir()
        self._power = PowerCut(library, self._data_dir, folder / "synced")
        self._command = [
            *(sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid())),
            *(str(binary), "--port", "0", "--unixsocket", str(folder / "store.sock"), "--dir", str(self._data_dir)),
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        ]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self._folder / 'store.sock'}"

    @property
    def data_dir(self) -> Path:
        """Where its files are."""
        return self._data_dir

    async def start(self) -> None:
        """Start it and wait until it has loaded its files. In this thread, which parent_death.py watches."""
        self._power.begin()
        with (self._folder / "store.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdout=log,
                stderr=log,
                env=os.environ | self._power.environment,
                start_new_session=True,
            )
        async with asyncio.timeout(_START_LIMIT_S), self.client() as client:
            while not await _answers(client):  # noqa: ASYNC110 - another process tells nobody
                await asyncio.sleep(0.02)

    def client(self) -> Redis:
        """A client of its own, past any proxy."""
        client: Redis = Redis.from_url(self.url, socket_timeout=5)
        return client

    def signal(self, number: int) -> None:
        _running(self._process).send_signal(number)

    async def kill(self) -> None:
        """End it with SIGKILL, and the child that writes its file anew, as a power cut would."""
        process = _running(self._process)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        for _ in range(200):  # the child is not ours to wait for, and may stay as a zombie
            if not _group_lives(process.pid):
                break
            await asyncio.sleep(0.005)

    async def lose_power(self) -> int:
        """End it as a power cut would: what was not synced is gone. How many bytes that were."""
        await self.kill()
        return self._power.cut()


class ServiceProcess:
    """nextitem-serve over a store that is reached at a URL; its port changes with every start."""

    def __init__(self, redis_url: str, bundle: Path, log: Path, *options: str, module: str = "service.cli") -> None:
        self._command = [
            *(sys.executable, parent_death.__file__, str(os.getpid()), sys.executable, "-m", module),
            *("--bundle", str(bundle), "--port", "0", "--redis-url", redis_url, *options),
        ]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""
        """Where it answers."""

    async def start(self) -> None:
        """Start it and wait until it takes requests."""
        said = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, stderr=log)
        async with asyncio.timeout(_START_LIMIT_S):
            while not (url := find_url(self._log.read_bytes()[said:])):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the service ended at once: see {self._log}")
                await asyncio.sleep(0.02)
        self.url = url

    @property
    def process_id(self) -> int:
        """The process that answers."""
        return _running(self._process).pid

    async def kill(self) -> None:
        process = _running(self._process)
        process.kill()
        await process.wait()

    async def stop(self) -> None:
        process = _running(self._process)
        process.send_signal(signal.SIGTERM)
        await process.wait()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _running(process: asyncio.subprocess.Process | None) -> asyncio.subprocess.Process:
    if process is None:
        raise RuntimeError("it was not started")
    return process


def read_url(message: str) -> str | None:
    """Where a service answers, by what it logs once it does; None of any other message, a candidate's among them."""
    match = _SERVING.match(message)
    return match[1] if match else None


def find_url(log: bytes) -> str | None:
    """Where a service answers, by its log so far; None as long as it does not."""
    whole = (line for line in log.splitlines(keepends=True) if line.endswith(b"\n") and line.startswith(b"{"))
    return next(filter(None, (read_url(json.loads(line)["message"]) for line in whole)), None)


async def _answers(client: Redis) -> bool:
    try:
        await client.ping()
    except (RedisError, OSError):
        return False
    return True
