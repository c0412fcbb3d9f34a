"""Runs a network as CUDA graphs: at a few fixed shapes, with inputs and outputs at fixed addresses.

A captured graph repeats the same work at the same addresses, launched as a whole and not operator by operator. So the
inputs of each shape are copied into fixed buffers, and values that the launching CPU reads, such as k, are the same in
all runs of a shape. docs/decisions/0012-a-gpu-runs-few-shapes.md gives the reasons, and says that it is unmeasured.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.contract.golden import compare
from model.contract.query import INPUTS, OUTPUTS
from service.inference.shape_buckets import Bucket, Feed, blank_feed, draw_feed, find_bucket, pad_feed

Outputs = tuple[NDArray[np.int64], NDArray[np.float32]]

_GRAPH_ID = "gpu_graph_id"
"""ONNX Runtime's run option: which captured graph to repeat, or to capture in the first run of that number."""
_NO_GRAPH = -1
_CHECK_RUNS = 3
"""Test runs per shape, compared with runs without a graph: the first is captured, the others repeat it."""


class RunsDiffer(Exception):
    """A run with a CUDA graph answers differently from one without."""


class CudaGraphRunner:
    """A session with input and output buffers on `device` for each of some shapes.

    For one thread only: a captured graph belongs to the thread that captured it, and the buffers to one run at a time.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        buckets: Sequence[Bucket],
        *,
        inputs: Collection[str] = INPUTS,
        device: str,
    ) -> None:
        self._session = session
        self._no_graph = without_graph()
        self._shapes = {
            bucket: _CapturedShape(session, bucket, inputs, device, number) for number, bucket in enumerate(buckets, 1)
        }
        self._buckets = tuple(buckets)
        self.max_rows: int = max(bucket.rows for bucket in buckets)

    def run(self, feed: Feed) -> Outputs:
        """Run a batch. Returns new arrays, (B, k) each. A batch that fits no shape runs without a graph."""
        bucket = find_bucket(self._buckets, feed)
        if bucket is None:
            return self.run_without_graph(feed)
        indexes, scores = self._shapes[bucket].run(feed)
        rows, k = len(feed["item_ids"]), int(feed["k"][0])
        return indexes[:rows, :k], scores[:rows, :k]

    def run_without_graph(self, feed: Feed) -> Outputs:
        """Run a batch in its own shape, launched operator by operator."""
        indexes, scores = self._session.run(OUTPUTS, dict(feed), self._no_graph)
        return indexes, scores

    def verify(
        self, answer: Callable[[Feed], Outputs], *, item_count: int, inputs: Collection[str], tolerance: float
    ) -> None:
        """Capture every shape by running it, and compare the outputs with those of `answer`.

        Raises RunsDiffer if they differ by more than `tolerance`, and what ONNX Runtime raises.
        """
        for bucket in self._buckets:
            for seed in range(_CHECK_RUNS):
                feed = draw_feed(bucket, item_count=item_count, inputs=inputs, seed=seed)
                if not answers_match(self._shapes[bucket].run(feed), answer(feed), tolerance=tolerance):
                    raise RunsDiffer(f"runs of {bucket.rows} rows of {bucket.length} tokens answer otherwise")


class _CapturedShape:
    """The buffers of one shape and their IO binding."""

    def __init__(
        self, session: onnxruntime.InferenceSession, bucket: Bucket, inputs: Collection[str], device: str, number: int
    ) -> None:
        self._session = session
        self._options = _run_options(number)
        self._padding = blank_feed(bucket, inputs)
        self._binding = session.io_binding()
        self._inputs = {}
        for name, array in self._padding.items():
            # Kernels read k on the CPU: kept there, it needs no copy in the middle of the graph.
            value = _allocate(array.shape, array.dtype.type, "cpu" if name == "k" else device)
            value.update_inplace(array)
            self._binding.bind_ortvalue_input(name, value)
            self._inputs[name] = value
        shape = (bucket.rows, bucket.results)
        self._outputs = [_allocate(shape, dtype, device) for dtype in (np.int64, np.float32)]
        for name, value in zip(OUTPUTS, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, value)

    def run(self, feed: Feed) -> Outputs:
        for name, array in pad_feed(feed, self._padding).items():
            if name != "k":
                self._inputs[name].update_inplace(array)  # takes any array of as many bytes: pad_feed checks types
        self._session.run_with_iobinding(self._binding, self._options)
        indexes, scores = (np.array(value.numpy()) for value in self._outputs)  # on a CPU numpy() is the buffer itself
        return indexes, scores


def answers_match(got: Outputs, wanted: Outputs, *, tolerance: float) -> bool:
    """Whether two answers (B, K) are the same but for rounding, as the contract defines it."""
    if got[0].shape != wanted[0].shape:
        return False
    rows = zip(_cut(got), _cut(wanted), strict=True)
    k = wanted[0].shape[1]
    return all(compare(row, expected, k=k, tolerance=tolerance) is None for row, expected in rows)


def _cut(outputs: Outputs) -> Iterator[tuple[list[int], list[float]]]:
    """Each row's items and scores, up to where its list ends."""
    for indexes, scores in zip(*outputs, strict=True):
        kept = scores != -np.inf
        yield indexes[kept].tolist(), scores[kept].tolist()


def _allocate(shape: tuple[int, ...], dtype: type[np.generic], device: str) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, dtype, device)


def without_graph() -> onnxruntime.RunOptions:
    """Options of a run that neither captures a graph nor repeats one."""
    return _run_options(_NO_GRAPH)


def _run_options(graph_id: int) -> onnxruntime.RunOptions:
    options = onnxruntime.RunOptions()
    options.add_run_config_entry(_GRAPH_ID, str(graph_id))
    return options
