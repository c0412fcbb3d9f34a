"""On paper: which nodes of an exported graph ONNX Runtime's CUDA provider would leave to the CPU, without any GPU.

    python -m benchmarks.graph.placement [--networks bert4rec sasrec ...]

ONNX Runtime captures a CUDA graph only of a graph without control flow and without a copy between CPU and GPU inside
(nodes on the CPU are allowed where they count shapes). What decides, as of 1.31 (core/framework/
fallback_cpu_capability.cc, core/optimizer/transformer_memcpy.cc, docs/OperatorKernels.md in its repository):

1. A node goes to CUDA where a kernel takes its types. KERNELS names those that were looked up, so that an operator that
   is new in our graphs counts as one without a kernel until somebody looks.
2. Some kernels want an input on the CPU (HOST_INPUTS), or give an output there (`Shape`).
3. Forwards from what is on the CPU: a node goes there whose inputs are all on the CPU, or few numbers of the file, or
   inputs of the graph. The last is a trap: `T - lengths` with T from a shape would be worked out on the CPU.
4. Backwards from what is wanted on the CPU: a node that gives nothing else goes there.
5. Between what is left of both worlds stand copies, also for an input of the graph that both read.

This is a reading of its rules, and no run: a session with CUDA says itself whether it captures
(service/inference/cuda_graphs.py).
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime
import torch
from onnx import TensorProto

from model.export.graph import export_network
from model.export.ranking import Scan
from model.nets.network import SequenceNetwork
from model.nets.registry import make_network

SCANS: tuple[Scan, ...] = ("plain", "float32", "int8")
NETWORKS = ("bert4rec", "sasrec", "gru4rec", "caser-history", "cbow", "skip-gram", "fmc")

_ANY = """
Abs Add And Cast Concat ConstantOfShape Conv Div Equal Expand Flatten GRU Gather GatherElements GatherND
Gelu Gemm Greater GreaterOrEqual IsNaN LayerNormalization LessOrEqual Log MatMul Max Min Mod Mul Not Or Range ReduceL2
ReduceMax ReduceSum Relu Reshape Round ScatterElements ScatterND Shape Sigmoid Sign Slice Softmax Squeeze Sub TopK
Transpose Unsqueeze Where
"""
KERNELS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_ANY.split(), ()),
    "Clip": (TensorProto.FLOAT, TensorProto.INT64),
    "MatMulInteger": (TensorProto.INT8,),
    "Pad": (TensorProto.BOOL, TensorProto.FLOAT),
}
"""CUDA's operators that our graphs have, and of which first input, where not of every type that occurs."""

HOST_INPUTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Expand", "ReduceL2", "ReduceMax", "ReduceSum", "Reshape", "Squeeze", "TopK", "Unsqueeze"), (1,)),
    "Clip": (1, 2),
    "ConstantOfShape": (0,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
}
"""Inputs that CUDA's kernels read on the CPU, by operator."""
_HOST_OUTPUTS = ("Shape", "Size")
_SMALL = 100
"""Numbers of the file that count as few."""


@dataclass(frozen=True)
class Placement:
    """What CUDA would leave to the CPU: names of operators with their nodes', and the values that would be copied."""

    on_cpu: tuple[str, ...]
    control_flow: tuple[str, ...]
    copies: tuple[str, ...]

    @property
    def can_be_captured(self) -> bool:
        """Whether ONNX Runtime would not refuse to capture."""
        return not self.control_flow and not self.copies


def place(graph: bytes) -> Placement:
    """Read the rules over an exported graph, as it is after the optimizations that come before they are applied."""
    return _Placing(_optimize(graph)).place()


def _optimize(graph: bytes) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = os.fspath(Path(folder) / "graph.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        return onnx.shape_inference.infer_shapes(onnx.load(options.optimized_model_filepath))


class _Placing:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self._sizes = {tensor.name: _count(tensor.dims) for tensor in self._graph.initializer}
        self._inputs = {value.name for value in self._graph.input}
        self._types = {tensor.name: tensor.data_type for tensor in self._graph.initializer} | {
            value.name: value.type.tensor_type.elem_type
            for value in (*self._graph.input, *self._graph.value_info, *self._graph.output)
        }
        self._host: set[str] = set()  # values on the CPU
        self._cpu = {number for number, node in enumerate(self._graph.node) if not self._has_kernel(node)}

    def place(self) -> Placement:
        nodes = list(self._graph.node)
        self._host.update(
            name for number, node in enumerate(nodes) if number not in self._cpu for name in self._host_values(node)
        )
        for number, node in enumerate(nodes):  # they stand in topological order
            if number not in self._cpu and self._follows(node):
                self._take(number)
        for number, node in reversed(list(enumerate(nodes))):
            if number not in self._cpu and self._leads(node):
                self._take(number)
                self._host.update(node.input)
        return Placement(
            on_cpu=tuple(f"{nodes[number].op_type} {nodes[number].name}" for number in sorted(self._cpu)),
            control_flow=tuple(node.name for node in nodes if any(value.g.node for value in node.attribute)),
            copies=tuple(sorted(set(self._list_copies(nodes)))),
        )

    def _has_kernel(self, node: onnx.NodeProto) -> bool:
        taken = KERNELS.get(node.op_type)
        return taken is not None and (not taken or self._types[node.input[0]] in taken)

    def _host_values(self, node: onnx.NodeProto) -> Iterator[str]:
        if node.op_type in _HOST_OUTPUTS:
            yield from node.output
        for place in HOST_INPUTS.get(node.op_type, ()):
            if place < len(node.input) and node.input[place]:
                yield node.input[place]

    def _follows(self, node: onnx.NodeProto) -> bool:
        """Rule 3."""
        wanted = HOST_INPUTS.get(node.op_type, ())
        touched = False
        for place, name in enumerate(node.input):
            if name in self._inputs or self._sizes.get(name, _SMALL + 1) <= _SMALL or not name:
                continue
            if name not in self._host or place in wanted:
                return False
            touched = True
        return touched and node.op_type not in _HOST_OUTPUTS

    def _leads(self, node: onnx.NodeProto) -> bool:
        """Rule 4."""
        return node.op_type not in _HOST_OUTPUTS and all(name in self._host for name in node.output)

    def _take(self, number: int) -> None:
        self._cpu.add(number)
        self._host.update(self._graph.node[number].output)

    def _list_copies(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
        """Rule 5: values that are made in one world, or come from outside, and are read in both or in the other."""
        made_on_cpu = {
            name: number in self._cpu or node.op_type in _HOST_OUTPUTS
            for number, node in enumerate(nodes)
            for name in node.output
        }
        read_on_cpu: dict[str, set[bool]] = {}
        for number, node in enumerate(nodes):
            for place, name in enumerate(node.input):
                on_cpu = number in self._cpu or place in HOST_INPUTS.get(node.op_type, ())
                read_on_cpu.setdefault(name, set()).add(on_cpu)
        for name, worlds in read_on_cpu.items():
            if name in self._sizes:
                continue  # constants are laid down in both
            if len(worlds) > 1 or worlds != {made_on_cpu.get(name, *worlds)}:
                yield name


def _count(dims: Sequence[int]) -> int:
    size = 1
    for dim in dims:
        size *= dim
    return size


def main() -> int:
    """Print a table of networks and scans."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.graph.placement",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--scans", nargs="*", choices=SCANS, default=SCANS)
    options = parser.parse_args()
    for name in options.networks:
        torch.manual_seed(1)
        network = make_network(name, item_count=500, max_length=50, width=16)
        if not isinstance(network, SequenceNetwork):
            parser.error(f"{name} cannot be served")
        for scan in options.scans:
            found = place(export_network(network, scan=scan))
            verdict = "can be captured" if found.can_be_captured else f"copies {', '.join(found.copies)}"
            print(f"{name:14} {scan:8} {len(found.on_cpu):3} nodes on the CPU   {verdict}")  # noqa: T201 - a table
    return 0


if __name__ == "__main__":
    sys.exit(main())
