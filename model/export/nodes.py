"""ONNX nodes, one call each: inputs by name, the output's name back."""

from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

_PREFIX = "rank_"


class Nodes:
    """Appends nodes and constants to a graph. Their names begin alike, so that none is PyTorch's."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._count = 0

    def add(self, op: str, *inputs: str, outputs: tuple[str, ...] = (), **attributes: Any) -> str:  # noqa: ANN401 - ONNX's own
        """Append a node. Returns the name of its first output, a new one unless given."""
        self._count += 1
        outputs = outputs or (f"{_PREFIX}{op}_{self._count}",)
        name = f"{_PREFIX}node_{self._count}"
        self._graph.node.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def top(self, values: str, count: str, *, largest: bool = True) -> tuple[str, str]:
        """The `count` largest or least of each row, best first, equal ones by position: values and positions."""
        outputs = (f"{_PREFIX}values_{self._count}", f"{_PREFIX}places_{self._count}")
        self.add("TopK", values, count, outputs=outputs, axis=1, largest=int(largest))
        return outputs

    def sort(self, values: str) -> str:
        """Rows in ascending order."""
        return self.top(values, self.add("Shape", values, start=1), largest=False)[0]

    def constant(self, name: str, value: ArrayLike, dtype: type[np.generic] | None = None) -> str:
        """Append a constant, once by its name."""
        name = _PREFIX + name
        if all(name != known.name for known in self._graph.initializer):
            array = np.ascontiguousarray(np.asarray(value, dtype=dtype)).reshape(np.shape(value))
            self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def one(self, value: int) -> str:
        """An int64 vector of one element."""
        return self.constant(f"int_{value}", [value], np.int64)

    def fill(self, value: bool, shape: str) -> str:
        """A tensor of one truth value."""
        return self.add("ConstantOfShape", shape, value=numpy_helper.from_array(np.array([value])))
