"""Loads the model in a short-lived process, to find out whether it can be used before any worker loads it."""

import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from model.contract.bundle import OpenBundle
from service.errors import StartFailed
from service.settings import Settings

if TYPE_CHECKING:  # importing it imports ONNX Runtime, which the supervisor does without
    from service.inference.loading import Loaded


def describe(loaded: "Loaded") -> str:
    """The model's name and version, and what it runs on."""
    manifest = loaded.model.manifest
    return f"{manifest.name} {manifest.version} on {loaded.model.engine.provider}"


def probe_model(settings: Settings, bundle: OpenBundle) -> str:
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
        description = describe(load_configured(settings, bundle))
    except StartFailed as error:
        sender.send((False, str(error)))
    else:
        sender.send((True, description))
