"""The process in which a bundle is tried first (probe.py): request on stdin, verdict on stdout."""

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from model.contract.bundle import inherit_bundle
from model.contract.manifest import BundleError
from service.errors import ModelRefused, StartFailed
from service.inference.refusal import refuse_bundle
from service.system.parent_death import tie_to_parent
from service.system.pauses import GilWatch

NICENESS: Final = 10
"""Answers come first."""
OUT_OF_MEMORY: Final = ("bad_alloc", "bad allocation", "allocate memory", "Failed to allocate", "Cannot allocate")
"""What ONNX Runtime and the C++ library say when memory is short."""


def main() -> None:
    """Try the bundle that the request names."""
    request: dict[str, Any] = json.load(sys.stdin)
    tie_to_parent(signal.SIGKILL, request["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    if request["memory_bytes"]:
        _limit_memory(request["memory_bytes"])
    verdict = _try(request)
    sys.stdout.write(json.dumps(verdict) + "\n")
    sys.stdout.flush()
    os._exit(0)  # what the graph has left behind in this process does not matter any more


def _limit_memory(limit: int) -> None:
    """Private memory that is written to; address space that a GPU's driver only reserves does not count."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)  # only root may raise it
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _try(request: Mapping[str, Any]) -> dict[str, Any]:
    from service.inference.model import load_model  # noqa: PLC0415 - after the limits

    held_s: float | None = None
    try:
        try:
            bundle = inherit_bundle(
                Path(request["folder"]), request["manifest"].encode(), request["digest"], request["descriptors"]
            )
        except BundleError as error:
            raise refuse_bundle(error) from error
        load: Callable[[], Any] = lambda: load_model(bundle, **request["options"])  # noqa: E731 - used twice
        model = load()
        provider = model.engine.provider
        if request["measures"]:
            del model  # the first load of a process is slower, and a worker has made its own long ago
            with GilWatch() as watch:
                load()
            held_s = watch.longest_s
    except MemoryError:
        return _refuse("memory", "the process that tried the bundle ran out of memory")
    except ModelRefused as error:
        code = "memory" if _ran_out_of_memory(error) else error.code
        return _refuse(code, str(error))
    except StartFailed as error:
        return _refuse("engine", str(error))
    return {"code": None, "sentence": "", "provider": provider, "held_s": held_s}


def _refuse(code: str, sentence: str) -> dict[str, Any]:
    return {"code": code, "sentence": sentence, "provider": "", "held_s": None}


def _ran_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY):
            return True
        error = error.__cause__
    return False
