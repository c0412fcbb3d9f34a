"""What a run ran on, for config.json: two runs compare only where this is known."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import version

import torch

_PACKAGES = ("nextitem", "torch", "numpy", "polars", "safetensors")


def choose_device(wanted: str) -> torch.device:
    """The device of a recipe: CUDA where there is one and nothing else was asked for."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)


def describe_environment(device: torch.device) -> dict[str, object]:
    """Versions, threads, device and the git revision of the working folder, if it has one."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in _PACKAGES},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "git_revision": _read_revision(),
    }


def _read_revision() -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    try:
        answer = subprocess.run([git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - a fixed command
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
