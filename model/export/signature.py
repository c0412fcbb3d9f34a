"""What goes into a graph that ranks and comes out of it (model/export/graph.py has the shapes).

The optional inputs are initializers of their own name, which ONNX lets a run override: a run that wants nothing of them
gives nothing, and services that do not know them serve the graph. The defaults have no elements, so that what reads
them has nothing to do.
"""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from model.contract.allowed import count_bytes
from model.contract.query import ALLOWED, ALLOWED_ROWS, CANDIDATE_SCORES, RANKED, SCORED

ALL_ROWS = np.iinfo(np.int64).max


def declare_signature(graph: onnx.GraphProto, *, item_count: int) -> None:
    """Give the graph its inputs, after those of the encoder, and its outputs."""
    width = count_bytes(item_count)
    del graph.output[:]
    graph.input.extend(
        [
            helper.make_tensor_value_info("exclude", TensorProto.INT32, ["R", "X"]),
            helper.make_tensor_value_info("candidates", TensorProto.INT32, ["R", "C"]),
            helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
        ]
    )
    _add_optional(graph, RANKED, np.array([ALL_ROWS]), [1])
    _add_optional(graph, SCORED, np.zeros((1, 0), dtype=np.int32), ["B", "S"])
    _add_optional(graph, ALLOWED, np.zeros((0, width), dtype=np.int32), ["F", width])
    _add_optional(graph, ALLOWED_ROWS, np.zeros((0, 1), dtype=np.int64), ["F", 1])
    graph.output.extend(
        [
            helper.make_tensor_value_info("indexes", TensorProto.INT64, ["R", "K"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["R", "K"]),
            helper.make_tensor_value_info(CANDIDATE_SCORES, TensorProto.FLOAT, ["B", "S", 1]),
        ]
    )


def _add_optional(graph: onnx.GraphProto, name: str, default: NDArray[np.integer], shape: list[int | str]) -> None:
    graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(default.dtype), shape))
    graph.initializer.append(numpy_helper.from_array(default, name))
