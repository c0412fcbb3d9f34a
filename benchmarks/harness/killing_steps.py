"""Kills processes with SIGKILL at named steps.

Copied as `sitecustomize.py` into a folder on PYTHONPATH, this runs at the start of every Python process. A file of a
step's name in that folder kills the first process that gets there. The modules are changed when they are imported.
"""

import importlib.util
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

STEPS: Final = {
    "worker-notices": ("service.deployment.watcher", "Watcher._change", "before"),
    "worker-waits-for-probe": ("subprocess", "Popen.communicate", "before"),
    "worker-loads": ("service.deployment.swap", "load_configured", "before"),
    "worker-exchanges": ("service.deployment.swap", "Swapper._exchange", "before"),
    "worker-frees": ("service.deployment.swap", "Swapper._retire", "before"),
    "probe-begins": ("service.deployment.probe_process", "_try", "before"),
    "probe-loads": ("service.inference.model", "load_model", "before"),
    "probe-ends": ("service.deployment.probe_process", "_try", "after"),
    "writer-begins": ("model.contract.deployment.journal", "append", "before"),
    "writer-noted": ("model.contract.deployment.journal", "append", "after"),
    "writer-set-aside": ("model.contract.atomic_files", "write_synced", "after"),
    "writer-changed": ("model.contract.deployment.writer", "write_whole", "after"),
}
"""Step: module, function, and whether it is before or after the function runs."""


def _kill_at(step: str) -> None:
    try:
        pathlib.Path(__file__).with_name(step).unlink()  # one process takes it
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _wrap(function: Callable[..., Any], step: str, when: str) -> Callable[..., Any]:
    @wraps(function)
    def run(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever it is
        if when == "before":
            _kill_at(step)
        result = function(*given, **named)
        if when == "after":
            _kill_at(step)
        return result

    return run


def _change(module: ModuleType) -> None:
    for step, (name, path, when) in STEPS.items():
        if name == module.__name__:
            owner, _, attribute = path.rpartition(".")
            place: Any = getattr(module, owner) if owner else module
            setattr(place, attribute, _wrap(getattr(place, attribute), step, when))


class Finder:
    """Finds the modules of the steps as everybody does, and changes them once they are loaded."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's spec, whose loader changes it; None for other modules."""
        if all(name != module for module, _, _ in STEPS.values()):
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            _change(module)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, Finder())
