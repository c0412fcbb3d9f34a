"""The environment of a run, for config.json: versions, threads and device."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import version

import torch

_PACKAGES = ("nextitem", "torch", "numpy", "polars", "safetensors")


def choose_device(wanted: str) -> torch.device:
    """The device of a recipe: CUDA if there is one, unless the recipe names another."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and "LOCAL_RANK" in os.environ:
        wanted = f"cuda:{os.environ['LOCAL_RANK']}"  # under torchrun a GPU for each process
    return torch.device(wanted)


def choose_bfloat16(wanted: str, device: torch.device) -> bool:
    """Whether to compute products in bfloat16: on GPUs that have it, unless the recipe says otherwise."""
    if wanted == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return wanted == "bfloat16"


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
