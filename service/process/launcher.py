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
from collections.abc import Callable
from functools import partial
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import RawValue
from types import FrameType
from typing import TYPE_CHECKING

from model.contract.bundle import OpenBundle
from service.deployment.choices import open_current, open_first
from service.deployment.probe import ProbeBook
from service.errors import StartFailed
from service.process.ports import listen, open_reuseport_sockets, share_port
from service.process.server import BACKLOG, DrainingServer, WorkerServer, configure
from service.process.supervisor import Supervisor
from service.process.worker import REFUSED, Heartbeat
from service.settings import Settings
from service.system.parent_death import tie_to_parent
from service.telemetry.logs import configure_logs
from service.telemetry.multiprocess import METRICS_FOLDER, make_metrics_folder

if TYPE_CHECKING:  # importing it imports ONNX Runtime, which the supervisor does without
    from service.http.dependencies import Service

_COLLECTIONS = (50_000, 5, 2)
"""Python's own first number is 700 new objects; an answer makes some thirty that stay until it is written. With the
others, everything but what is frozen is looked at once in 900,000 objects that stayed, which is some 100 MB."""
_log = logging.getLogger(__name__)

Run = Callable[[str, socket.socket], int]
"""Serves with the store at a URL, on a socket, until told to stop. Returns the exit status."""


def prepare_one(settings: Settings) -> Run:
    """Load the model into this process. Raises StartFailed."""
    os.environ.pop(METRICS_FOLDER, None)  # one worker shares its metrics with nobody
    _handle_sighup(lambda: None)  # until there is somebody who looks
    from service.app import create_app  # noqa: PLC0415 - after the line above
    from service.deployment.startup import load_first  # noqa: PLC0415 - as above

    loaded = [load_first(settings, ProbeBook(None))]
    model = loaded[0].model
    description = f"{model.manifest.name} {model.manifest.version} on {model.engine.provider}"
    del model

    def run(redis_url: str, listener: socket.socket) -> int:
        app = create_app(settings.model_copy(update={"redis_url": redis_url}), loaded.pop())  # this frame keeps nothing
        _handle_sighup(partial(_refresh, app.service))
        _tune_garbage_collection()
        server = DrainingServer(
            configure(settings, app),
            _announce(settings, listener, description),
            app.service.health,
            drain_delay_s=settings.drain_delay_s,
        )
        server.run([listen(listener, backlog=BACKLOG)])
        return 0

    return run


def prepare_many(settings: Settings) -> Run:
    """Check the model in a short-lived process, before any worker loads it. Raises StartFailed.

    The bundle's files stay open: a restarted worker serves what the deployment names by then and, where none of that
    can be used, this bundle, whatever was removed since. SIGHUP replaces the workers.
    """
    _handle_sighup(lambda: None)  # until there are workers to replace
    bundle, verdict = open_first(settings, ProbeBook(None))
    description = f"{bundle.manifest.name} {bundle.manifest.version} on {verdict.provider}"

    def run(redis_url: str, listener: socket.socket) -> int:
        with make_metrics_folder() as folder:
            os.environ[METRICS_FOLDER] = str(folder)
            from service.telemetry.processes import WorkerMetrics  # noqa: PLC0415 - after the line above

            shared = share_port(listener, backlog=BACKLOG)
            missing = RawValue(ctypes.c_uint)
            worker_settings = settings.model_copy(update={"redis_url": redis_url})
            supervisor = Supervisor(
                count=settings.workers,
                start=partial(_start_worker, settings=worker_settings, shared=shared, missing=missing),
                open_sockets=partial(open_reuseport_sockets, shared),
                bundle=bundle,
                find_bundle=partial(open_current, settings),
                announce=_announce(settings, listener, description),
                missing=missing,
                gauges=WorkerMetrics(),
                metrics_folder=folder,
                drain_delay_s=settings.drain_delay_s,
            )
            _handle_sighup(supervisor.replace_all)
            return supervisor.run()

    return run


def _refresh(service: "Service") -> None:
    """SIGHUP to the only worker: look at the deployment now."""
    if service.watcher is None:
        _log.warning("SIGHUP ignored: the bundle is a single one, so there is no deployment to look at")
    else:
        service.watcher.refresh()


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
    from service.deployment.instance import Instance  # noqa: PLC0415 - as above
    from service.deployment.startup import load_first  # noqa: PLC0415 - as above

    try:
        with bundle:
            loaded = [load_first(settings, Instance.from_environment().book, bundle)]
        app = create_app(settings, loaded.pop(), workers_missing=lambda: missing.value)  # this frame keeps nothing
    except StartFailed as error:
        _log.error("Worker cannot start: %s", error)
        sys.exit(REFUSED)
    _tune_garbage_collection()
    WorkerServer(configure(settings, app), heartbeat, app.service.health).run(listeners)


def _handle_sighup(act: Callable[[], object]) -> None:
    """Call `act` on SIGHUP. If the terminal was closed, stop the service cleanly instead."""
    has_terminal = os.isatty(0)

    def handle(_number: int, _frame: FrameType | None) -> None:
        if has_terminal and not os.isatty(0):  # the kernel detaches it before it sends the signal
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            act()

    signal.signal(signal.SIGHUP, handle)


def _tune_garbage_collection() -> None:
    """Exclude long-lived objects from garbage collection, and collect the rest less often.

    There are hardly any cycles to find, but many concurrent answers trigger collections often.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # so that frozen objects do not count towards the next full collection
    gc.set_threshold(*_COLLECTIONS)


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
