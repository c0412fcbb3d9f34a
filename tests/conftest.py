"""What the tests of the service and of its deployment share: tools of others, real stores, scenarios over them."""

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from service.store.connection import connect
from service.store.history import HistoryStore
from service.system import parent_death

os.environ.setdefault("NEXTITEM_JUDGE", "off")  # it writes to bundle folders, which tests share; its own turn it on
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch: its products are small here, and the cores are shared

_MEMORY = Path("/dev/shm")  # noqa: S108 - what is made there has a name of its own
_ROOM = 4 << 30
"""Several times what the suite has at a time."""
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    # Syncing to a disk would take half of the suite's time, and a disk that stalls fails it. Power cuts are simulated.
    tempfile.tempdir = os.environ["TMPDIR"] = str(_MEMORY)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported, hundreds of megabytes: it goes through what tests leave alone."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def keep_exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have PyTorch export the same module with the same weights once in a run, which takes seconds.

    The processes that share a run share them. Its exporter also reads the signatures of all its operators for each
    export: here they are read once.
    """
    if "model.export.graph" not in sys.modules:  # no test that was collected exports anything, and half have no torch
        yield
        return
    from tests.kept_exports import keep_exports_in, keep_operators  # noqa: PLC0415

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of them all
    with pytest.MonkeyPatch.context() as patch:
        keep_operators(patch)
        keep_exports_in(folder / "exports", patch)
        yield


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """Find a program, installed with the tests or on PATH; without it the test is skipped, and fails in CI."""

    def find(name: str) -> str:
        beside = Path(sys.executable).parent  # the environment's, which need not be on PATH
        found = shutil.which(name, path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
        if found is None:
            if os.environ.get("CI") == "true":
                pytest.fail(f"{name} is not there: CI must run this test")
            pytest.skip(f"{name} is not there")
        return found

    return find


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a socket, unlike that of `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="nextitem-test-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def run_store() -> Callable[..., AbstractContextManager[None]]:
    """Run a store's command, tied to this process, from when it answers on its unix socket to the end of a context."""

    @contextmanager
    def run(command: list[str], socket: Path, **credentials: Any) -> Iterator[None]:
        server = subprocess.Popen([sys.executable, parent_death.__file__, str(os.getpid()), *command])
        try:
            with Redis(unix_socket_path=str(socket), **credentials) as client:
                _wait_for(client, server)
            yield
        finally:
            server.terminate()
            server.wait(10)

    return run


def _wait_for(client: Redis, server: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        try:
            client.ping()
        except RedisError:
            assert server.poll() is None, "the store ended at once"
            time.sleep(0.02)
        else:
            return
    pytest.fail("the store did not answer within 10 s")


@pytest.fixture(scope="session")
def run_scenario() -> Callable[..., Any]:
    """Run an async function of a HistoryStore with the given options, over a store's URL, in a loop of its own."""

    def run(
        scenario: Callable[[HistoryStore], Awaitable[Any]],
        url: str,
        *,
        password_file: Path | None = None,
        **options: Any,
    ) -> Any:
        async def main() -> Any:
            history = HistoryStore(connect(url, password_file=password_file), **options)
            try:
                return await scenario(history)
            finally:
                await history.close()

        return asyncio.run(main())

    return run
