"""uvicorn, in this process for one worker, or supervising several.

Several workers are spawned and set up by NEXTITEM_* variables; each is tied to this process, so that a kill -9 of it
leaves none behind. They share their metrics through a folder that prometheus_client is told of by the environment, and
the port, which each opens for itself (ports.py).
"""

import gc
import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from model.contract.bundle import locate_bundle
from model.contract.manifest import BundleError
from service.errors import StartFailed
from service.leash import tie_to_parent
from service.metrics_folder import METRICS_FOLDER, bury_dead, make_metrics_folder
from service.ports import listen, share_port
from service.settings import Settings
from service.wire import LimitedProtocol

if TYPE_CHECKING:  # to import it is to import FastAPI and prometheus_client, which must find their environment first
    from fastapi import FastAPI

    from service.health import Health

DRAIN_LIMIT_S = 10
"""How long requests under way may take to finish once no new ones are taken."""
DRAIN = signal.SIGUSR1
"""Tells a worker that the whole service is about to stop. SIGTERM alone is a worker that is replaced by another."""
HEALTHCHECK_S = 10
"""A worker that does not answer its supervisor for that long is replaced. The supervisor heeds no signal meanwhile."""

_BACKLOG = 2048
_COLLECTIONS = (50_000, 20, 20)
"""Python's own first number is 700 new objects; an answer makes some thirty that stay until it is written."""
_POLL_S = 0.05
_log = logging.getLogger(__name__)

Run = Callable[[str, socket.socket], int]
"""Serves on a socket with the store at a URL until told to stop; the exit status."""


def prepare_one(settings: Settings) -> Run:
    """Load the model into this process. Raises StartFailed."""
    os.environ.pop(METRICS_FOLDER, None)  # one worker keeps its metrics to itself
    from service.app import create_app, load_configured  # noqa: PLC0415 - after the line above

    loaded = load_configured(settings)
    model = loaded.model
    words = f"{model.manifest.name} {model.manifest.version} on {model.engine.provider}"

    def run(redis_url: str, listener: socket.socket) -> int:
        app = create_app(settings.model_copy(update={"redis_url": redis_url}), loaded)
        _spare_collections()
        server = _Announced(
            _configure(settings, app),
            _announce(settings, listener, words),
            app.state.service.health,
            drain_delay_s=settings.drain_delay_s,
        )
        server.run([listen(listener, backlog=_BACKLOG)])
        return 0

    return run


def prepare_many(settings: Settings) -> Run:
    """Check the model in a process that ends again, so that workers need not find out. Raises StartFailed.

    The version is settled here: a worker that replaces another serves the same, whatever was published since.
    """
    try:
        settings = settings.model_copy(update={"bundle": locate_bundle(settings.bundle).resolve()})
    except BundleError as error:
        raise StartFailed(f"the bundle cannot be used: {error}") from error
    words = _try_model(settings)

    def run(redis_url: str, listener: socket.socket) -> int:
        os.environ.update(settings.model_copy(update={"redis_url": redis_url}).to_environment())
        with make_metrics_folder() as folder:
            os.environ[METRICS_FOLDER] = str(folder)
            config = _configure(settings, f"{__name__}:create_worker_app")
            supervisor = _Supervisor(
                config,
                share_port(listener, backlog=_BACKLOG),
                _announce(settings, listener, words),
                folder,
                drain_delay_s=settings.drain_delay_s,
            )
            supervisor.run()
        return 1 if supervisor.failed else 0

    return run


def create_worker_app() -> "FastAPI":
    """The application of one of several workers, which ends with the process that started it."""
    parent = multiprocessing.parent_process()
    tie_to_parent(signal.SIGTERM, None if parent is None else parent.pid)
    from service.app import create_app_from_environment  # noqa: PLC0415 - slow to import: tied first

    app = create_app_from_environment()
    _spare_collections()
    health: Health = app.state.service.health
    signal.signal(DRAIN, lambda _number, _frame: health.drain())
    # A terminal's Ctrl-C reaches the workers as well: when they end is for their parent to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return app


def _spare_collections() -> None:
    """Let the collector of cycles pass over what lives as long as the process, and look at the rest more seldom.

    It has hardly anything to find, and many answers at once make it look often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)


class _Announced(uvicorn.Server):
    """A server that tells when it takes requests. Told to stop, it is not ready at once, and takes them a while longer.

    Told twice, it finishes nothing.
    """

    def __init__(
        self, config: uvicorn.Config, announce: Callable[[], None], health: "Health", *, drain_delay_s: float
    ) -> None:
        super().__init__(config)
        self._announce = announce
        self._health = health
        self._drain_delay_s = drain_delay_s
        self._stops_at_s: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._stops_at_s is None:
            # Not in shutdown(): that begins by closing the socket, after which nobody can ask.
            self._health.drain()
            self._stops_at_s = time.monotonic() + self._drain_delay_s
            self.should_exit = not self.started
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self._stops_at_s is not None and time.monotonic() >= self._stops_at_s:
            self.should_exit = True
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


class _Supervisor(Multiprocess):
    """Several workers on one socket. A dead one is replaced; one that cannot start ends them all.

    Told to stop, none of them is ready at once, and all take requests a while longer. Told twice, they are killed.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listeners: list[socket.socket],
        announce: Callable[[], None],
        metrics_folder: Path,
        *,
        drain_delay_s: float,
    ) -> None:
        super().__init__(config, listeners)
        self._announce: Callable[[], None] | None = announce
        self._metrics_folder = metrics_folder
        self._drain_delay_s = drain_delay_s
        self._times_told = 0

    @property
    def failed(self) -> bool:
        """Whether a worker could not start."""
        return any(worker.exitcode == STARTUP_FAILURE for worker in self.processes)

    def keep_subprocess_alive(self) -> None:
        before = {worker.pid for worker in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {worker.pid for worker in self.processes}:
            _log.error("A worker died and was replaced", extra={"fields": {"worker": pid}})
        # Whatever ended a worker, signals for a rolling restart included.
        try:
            bury_dead({worker.pid for worker in self.processes if worker.pid}, self._metrics_folder)
        except Exception:  # noqa: BLE001 - whatever it is, it is no reason to serve nobody
            _log.exception("The counts of a dead worker cannot be kept")
        if self._announce and not self.should_exit.is_set() and all(worker.is_ready() for worker in self.processes):
            self._announce()
            self._announce = None

    def handle_int(self) -> None:
        self._times_told += 1
        super().handle_int()

    def handle_term(self) -> None:
        self._times_told += 1
        super().handle_term()

    def terminate_all(self) -> None:
        if not self.failed:
            for worker in self.processes:
                if worker.pid is not None and worker.process.is_alive():
                    os.kill(worker.pid, DRAIN)
            self._wait(self._drain_delay_s, while_=lambda: True)
        super().terminate_all()

    def join_all(self) -> None:
        def finishing() -> bool:
            return any(worker.process.is_alive() for worker in self.processes)

        self._wait(DRAIN_LIMIT_S + HEALTHCHECK_S, while_=finishing)
        if finishing():
            _log.error("Workers that did not end were killed")
            for worker in self.processes:
                worker.kill()
        super().join_all()

    def _wait(self, seconds: float, *, while_: Callable[[], bool]) -> None:
        """Wait, unless told to stop once more."""
        until_s = time.monotonic() + seconds
        while self._times_told < 2 and while_() and time.monotonic() < until_s:
            time.sleep(_POLL_S)
            self.handle_signals()


def _configure(settings: Settings, app: "FastAPI | str") -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=settings.workers,
        loop="uvloop",
        http=LimitedProtocol,
        proxy_headers=False,  # who the client is matters to nobody here
        ws="none",
        lifespan="on",
        log_config=None,  # logs.py
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=DRAIN_LIMIT_S,
        timeout_worker_healthcheck=HEALTHCHECK_S,
    )


def _announce(settings: Settings, listener: socket.socket, words: str) -> Callable[[], None]:
    port = listener.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url, store = f"http://{host}:{port}", settings.describe_store()

    def announce() -> None:
        if settings.keys_file is None and not settings.is_local:
            _log.warning("Without keys whoever reaches this address may read and write everything (--allow-anonymous)")
        keys = settings.describe_keys()
        _log.info("Serving %s at %s, store %s, workers: %d, keys: %s", words, url, store, settings.workers, keys)

    return announce


def _try_model(settings: Settings) -> str:
    """Load the model in a process of its own and say which it is and where it runs."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_report_model, args=(settings, sender), daemon=True)
    process.start()
    sender.close()
    try:
        loaded, words = receiver.recv()
    except EOFError as error:
        process.join()
        raise StartFailed(f"loading the bundle ended the process that tried it ({process.exitcode})") from error
    finally:
        receiver.close()
        process.terminate()
        process.join()
    if not loaded:
        raise StartFailed(words)
    return str(words)


def _report_model(settings: Settings, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    from service.app import load_configured  # noqa: PLC0415 - in this process only

    try:
        model = load_configured(settings).model
    except StartFailed as error:
        sender.send((False, str(error)))
    else:
        sender.send((True, f"{model.manifest.name} {model.manifest.version} on {model.engine.provider}"))
