"""Exports that tests share: what is exported again with the same weights is what it was the first time.

A graph is told by all that PyTorch's exporter is given: the modules by type, with whatever they hold, each weight by
its bytes, and the options. A module that holds anything else than that is exported anew each time.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch.onnx._internal.exporter._registration import ONNXRegistry

PLAIN = (str, int, float, bool, type(None), torch.dtype, torch.device, torch.export.Dim)
"""Whose `repr` says all of it."""


def keep_operators(patch: pytest.MonkeyPatch) -> None:
    """Let the exporter read the signatures of its operators once in this process."""
    patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib)))


def keep_exports_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let `torch.onnx.export` keep graphs in a folder, and take from there those that it made before."""
    folder.mkdir(exist_ok=True)
    export = torch.onnx.export

    def export_once(module: torch.nn.Module, *arguments: Any, **options: Any) -> Any:
        file = folder / f"{name_export(module, arguments, options)}.onnx"
        if not file.exists():
            program: Any = export(module, *arguments, **options)
            part = file.with_suffix(f".{os.getpid()}")
            part.write_bytes(program.model_proto.SerializeToString())
            part.rename(file)
        return SimpleNamespace(model_proto=onnx.load(file))

    patch.setattr(torch.onnx, "export", export_once)


def name_export(*given: Any) -> str:
    """A name that two exports share only where they are given the same."""
    digest, tensors = hashlib.sha256(), dict[int, int]()
    _read(given, digest.update, tensors)
    return digest.hexdigest()


def _read(value: Any, write: Callable[[bytes], None], tensors: dict[int, int]) -> None:
    kind = type(value)
    write(f"<{kind.__module__}.{kind.__qualname__} ".encode())
    if isinstance(value, torch.Tensor):
        shared = tensors.setdefault(id(value), len(tensors))  # two places that read one tensor are no two tensors
        write(f"{shared} {value.dtype} {tuple(value.shape)} {value.requires_grad} ".encode())
        write(value.detach().contiguous().numpy().tobytes())
    elif isinstance(value, np.ndarray):
        write(f"{value.dtype} {value.shape} ".encode())
        write(value.tobytes())
    elif isinstance(value, torch.nn.Module):
        _read(vars(value), write, tensors)
    elif dataclasses.is_dataclass(value):
        _read([getattr(value, field.name) for field in dataclasses.fields(value)], write, tensors)
    elif isinstance(value, dict):
        for key, held in value.items():
            _read(key, write, tensors)
            _read(held, write, tensors)
    elif isinstance(value, list | tuple):
        for held in value:
            _read(held, write, tensors)
    elif isinstance(value, set | frozenset):
        _read(sorted(value), write, tensors)
    else:
        write(repr(value).encode() if isinstance(value, PLAIN) else os.urandom(16))
    write(b">")
