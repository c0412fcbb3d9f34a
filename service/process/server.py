"""Runs uvicorn: in this process for one worker, or in several processes under a supervisor (supervisor.py).

Each of several workers is spawned with a parent-death signal, so that a kill -9 of this process leaves none behind.
They share the port (ports.py), and their metrics through a folder that prometheus_client finds by the environment.
"""

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import RawValue
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from model.contract.bundle import OpenBundle, open_bundle
from model.contract.manifest import BundleError
from service.errors import StartFailed
from service.http.protocol import LimitedProtocol
from service.process.ports import listen, open_reuseport_sockets, share_port
from service.process.supervisor import DRAIN, FINISH_LIMIT_S, REFUSED, RETIRE, Heartbeat, Supervisor
from service.process.watchdog import Watchdog
from service.settings import Settings
from service.system.parent_death import tie_to_parent
from service.telemetry.logs import configure_logs
from service.telemetry.multiprocess import METRICS_FOLDER, make_metrics_folder

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from service.health import Health
    from service.inference.loading import Loaded

HANG_LIMIT_S = 7.0
"""A worker whose event loop is blocked for this long ends itself, and the supervisor starts another."""
HANG_LIMIT_ALONE_S = 20.0
"""The same for the only worker. Longer, because its end is an outage until the service is restarted."""

_BACKLOG = 2048
_COLLECTIONS = (50_000, 5, 2)
"""Python's own first number is 700 new objects; an answer makes some thirty that stay until it is written. With the
others, everything but what is frozen is looked at once in 900,000 objects that stayed, which is some 100 MB."""
_log = logging.getLogger(__name__)

Run = Callable[[str, socket.socket], int]
"""Serves with the store at a URL, on a socket, until told to stop. Returns the exit status."""


def prepare_one(settings: Settings) -> Run:
    """Load the model into this process. Raises StartFailed."""
    os.environ.pop(METRICS_FOLDER, None)  # one worker shares its metrics with nobody
    _handle_sighup(lambda: _log.warning("SIGHUP ignored: it replaces workers only when there are several"))
    from service.app import create_app  # noqa: PLC0415 - after the line above
    from service.inference.loading import load_configured  # noqa: PLC0415 - as above

    loaded = load_configured(settings)
    description = _describe(loaded)

    def run(redis_url: str, listener: socket.socket) -> int:
        app = create_app(settings.model_copy(update={"redis_url": redis_url}), loaded)
        _tune_garbage_collection()
        server = _DrainingServer(
            _configure(settings, app),
            _announce(settings, listener, description),
            app.service.health,
            drain_delay_s=settings.drain_delay_s,
        )
        server.run([listen(listener, backlog=_BACKLOG)])
        return 0

    return run


def prepare_many(settings: Settings) -> Run:
    """Check the model in a short-lived process, before any worker loads it. Raises StartFailed.

    The bundle's version is fixed here and its files stay open. A restarted worker serves the same version, whatever was
    published or removed since. SIGHUP selects the version anew.
    """
    _handle_sighup(lambda: None)  # until there are workers to replace
    bundle = _open_configured(settings)
    description = _probe_model(settings, bundle)

    def run(redis_url: str, listener: socket.socket) -> int:
        with make_metrics_folder() as folder:
            os.environ[METRICS_FOLDER] = str(folder)
            from service.telemetry.processes import WorkerMetrics  # noqa: PLC0415 - after the line above

            shared = share_port(listener, backlog=_BACKLOG)
            missing = RawValue(ctypes.c_uint)
            worker_settings = settings.model_copy(update={"redis_url": redis_url})
            supervisor = Supervisor(
                count=settings.workers,
                start=partial(_start_worker, settings=worker_settings, shared=shared, missing=missing),
                open_sockets=partial(open_reuseport_sockets, shared),
                bundle=bundle,
                find_bundle=partial(_open_configured, settings),
                announce=_announce(settings, listener, description),
                missing=missing,
                gauges=WorkerMetrics(),
                metrics_folder=folder,
                drain_delay_s=settings.drain_delay_s,
            )
            _handle_sighup(supervisor.replace_all)
            return supervisor.run()

    return run


def _open_configured(settings: Settings) -> OpenBundle:
    """Open the files of the configured bundle. Raises StartFailed."""
    try:
        return open_bundle(settings.bundle)
    except BundleError as error:
        raise StartFailed(f"the bundle cannot be used: {error}") from error


def _start_worker(
    bundle: OpenBundle,
    sockets: list[socket.socket],
    heartbeat: Heartbeat,
    *,
    settings: Settings,
    shared: socket.socket,
    missing: ctypes.c_uint,
) -> SpawnProcess:
    """Start one of several workers. Raises OSError."""
    process = multiprocessing.get_context("spawn").Process(
        target=_run_worker, args=(settings, [shared, *sockets], missing, bundle, heartbeat), name="worker", daemon=True
    )
    process.start()
    return process


def _run_worker(
    settings: Settings, listeners: list[socket.socket], missing: ctypes.c_uint, bundle: OpenBundle, heartbeat: Heartbeat
) -> None:
    """The main function of a worker process, which ends when its parent does."""
    parent = multiprocessing.parent_process()
    tie_to_parent(signal.SIGTERM, None if parent is None else parent.pid)
    # Ctrl-C and the end of a terminal reach the workers, too, but only their parent may stop them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    configure_logs(settings.log_level)
    from service.app import create_app  # noqa: PLC0415 - slow to import: tied first
    from service.inference.loading import load_configured  # noqa: PLC0415 - as above

    try:
        with bundle:
            loaded = load_configured(settings, bundle)
        app = create_app(settings, loaded, workers_missing=lambda: missing.value)
    except StartFailed as error:
        _log.error("Worker cannot start: %s", error)
        sys.exit(REFUSED)
    _tune_garbage_collection()
    _WorkerServer(_configure(settings, app), heartbeat, app.service.health).run(listeners)


def _handle_sighup(act: Callable[[], object]) -> None:
    """Call `act` on SIGHUP. If the terminal was closed, stop the service cleanly instead."""
    has_terminal = os.isatty(0)

    def handle(_number: int, _frame: FrameType | None) -> None:
        if has_terminal and not os.isatty(0):  # the kernel detaches it before it sends the signal
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            act()

    signal.signal(signal.SIGHUP, handle)


def _describe(loaded: "Loaded") -> str:
    manifest = loaded.model.manifest
    return f"{manifest.name} {manifest.version} on {loaded.model.engine.provider}"


def _tune_garbage_collection() -> None:
    """Exclude long-lived objects from garbage collection, and collect the rest less often.

    There are hardly any cycles to find, but many concurrent answers trigger collections often.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # so that frozen objects do not count towards the next full collection
    gc.set_threshold(*_COLLECTIONS)


class _WatchedServer(uvicorn.Server):
    """A server with a watchdog: its process ends if its event loop hangs between start and shutdown."""

    def __init__(self, config: uvicorn.Config, watchdog: Watchdog) -> None:
        super().__init__(config)
        self._watchdog = watchdog

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._watchdog.start()

    async def on_tick(self, counter: int) -> bool:
        self._watchdog.beat()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watchdog.stop()
        await super().shutdown(sockets)


class _WorkerServer(_WatchedServer):
    """One of several workers. It reports readiness and heartbeats to its supervisor."""

    def __init__(self, config: uvicorn.Config, heartbeat: Heartbeat, health: "Health") -> None:
        super().__init__(config, Watchdog(HANG_LIMIT_S))
        self._heartbeat = heartbeat
        self._health = health
        self._retired = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        signal.signal(DRAIN, lambda _number, _frame: self._health.drain())
        signal.signal(RETIRE, self._retire)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # once more: uvicorn has replaced the handler
        await super().startup(sockets)
        self._heartbeat.ready = self.started

    def _retire(self, _number: int, _frame: FrameType | None) -> None:
        self._health.retire()
        self._retired = True

    async def on_tick(self, counter: int) -> bool:
        self._heartbeat.beats += 1
        if self._retired:
            for server in self.servers:  # the successor has the same sockets and accepts their connections
                server.close()
        return await super().on_tick(counter)


class _DrainingServer(_WatchedServer):
    """The only worker. It announces when it serves, and drains before it stops.

    On the first signal it reports that it is not ready, but answers for the drain delay. A second signal stops it at
    once.
    """

    def __init__(
        self, config: uvicorn.Config, announce: Callable[[], None], health: "Health", *, drain_delay_s: float
    ) -> None:
        super().__init__(config, Watchdog(HANG_LIMIT_ALONE_S))
        self._announce = announce
        self._health = health
        self._drain_delay_s = drain_delay_s
        self._stops_at_s: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._stops_at_s is None:
            # Not in shutdown(), which begins by closing the socket: nobody could see the state then.
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


def _configure(settings: Settings, app: "ASGIApp") -> uvicorn.Config:
    return uvicorn.Config(
        app,
        workers=settings.workers,
        loop="uvloop",
        http=LimitedProtocol,
        proxy_headers=False,  # the service does not use client addresses
        ws="none",
        lifespan="on",
        log_config=None,  # logs.py
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # handed on to the loop, which takes any
        backlog=_BACKLOG,
        timeout_graceful_shutdown=int(FINISH_LIMIT_S),
    )


def _announce(settings: Settings, listener: socket.socket, description: str) -> Callable[[], None]:
    port = listener.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url, store = f"http://{host}:{port}", settings.describe_store()

    def announce() -> None:
        if settings.keys_file is None and not settings.is_local:
            _log.warning(
                "No API keys: anyone who can reach this address may read and write all data (--allow-anonymous)"
            )
        keys = settings.describe_keys()
        _log.info("Serving %s at %s, store %s, workers: %d, keys: %s", description, url, store, settings.workers, keys)

    return announce


def _probe_model(settings: Settings, bundle: OpenBundle) -> str:
    """Load the model in a child process. Returns a description of model and provider. Raises StartFailed."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_report_model, args=(settings, bundle, sender), daemon=True)
    process.start()
    sender.close()
    try:
        loaded, description = receiver.recv()
    except EOFError as error:
        process.join()
        raise StartFailed(f"the process that tried to load the bundle ended with status {process.exitcode}") from error
    finally:
        receiver.close()
        process.terminate()
        process.join()
    if not loaded:
        raise StartFailed(description)
    return str(description)


def _report_model(settings: Settings, bundle: OpenBundle, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    from service.inference.loading import load_configured  # noqa: PLC0415 - in this process only

    try:
        description = _describe(load_configured(settings, bundle))
    except StartFailed as error:
        sender.send((False, str(error)))
    else:
        sender.send((True, description))
