"""Checkpoints and weights as safetensors: tensors and JSON, nothing that could run code when it is read."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from model.contract.atomic_files import write_whole
from training.errors import CheckpointError
from training.runs.progress import Progress

_WEIGHTS, _MOMENTS = "network.", "optimizer."


def save_weights(path: Path, network: nn.Module) -> None:
    write_whole(path, safetensors.torch.save(_to_storable(network.state_dict())))


def load_weights(path: Path, network: nn.Module) -> None:
    """Read what `save_weights` wrote into a network of the same sizes. Raises CheckpointError."""
    with _safetensors_faults(path):
        network.load_state_dict(safetensors.torch.load_file(path))


def save_checkpoint(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write all that resuming needs into one file. Random state is no part of it: each step begins its own."""
    tensors = {
        **{_WEIGHTS + name: value for name, value in network.state_dict().items()},
        **{
            f"{_MOMENTS}{index}.{name}": value
            for index, moments in optimizer.state_dict()["state"].items()
            for name, value in moments.items()
        },
    }
    write_whole(path, safetensors.torch.save(_to_storable(tensors), {"progress": json.dumps(asdict(progress))}))


def load_checkpoint(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Read what `save_checkpoint` wrote into network and optimizer. Raises CheckpointError."""
    with _safetensors_faults(path):
        with safetensors.safe_open(path, framework="pt") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            progress = Progress(**json.loads(file.metadata()["progress"]))
        network.load_state_dict(_take(tensors, _WEIGHTS))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _take(tensors, _MOMENTS).items():
            index, _, moment = name.partition(".")
            state.setdefault(int(index), {})[moment] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return progress


def _to_storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _take(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@contextmanager
def _safetensors_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint of this run: {str(error).splitlines()[0]}") from error
