"""Runs of a graph at few fixed shapes, from and into memory that stays where it is: what CUDA graphs want.

A captured graph repeats the same work at the same addresses, launched as one and not operator by operator. So the
inputs of every shape are copied to where they always are, and what is read by the launching CPU, as k is, is the same
in all runs of a shape. Why so, and that nobody has measured it: docs/decisions/0012-a-gpu-runs-few-shapes.md.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.contract.question import INPUTS, OUTPUTS
from service.buckets import Bucket, Feed, blank_feed, draw_feed, find_bucket, pad_feed

Outputs = tuple[NDArray[np.int64], NDArray[np.float32]]

_GRAPH_ID = "gpu_graph_id"
"""ONNX Runtime's run option: which captured graph to repeat, or to capture in the first run of that number."""
_NO_GRAPH = -1
_PROOFS = 3
"""Runs of each shape that must answer as unbound ones do: the first is captured, the others are repeated."""


class RunsDiffer(Exception):
    """A bound run answers otherwise than an unbound one."""


class BoundRuns:
    """A session whose inputs and outputs stand ready for each of some shapes, on `device`.

    Not for several threads: a captured graph belongs to the thread that captured it, and buffers to one run at a time.
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
        self._free = _number(_NO_GRAPH)
        self._shapes = {
            bucket: _BoundShape(session, bucket, inputs, device, number) for number, bucket in enumerate(buckets, 1)
        }
        self._buckets = tuple(buckets)
        self.most_rows: int = max(bucket.rows for bucket in buckets)

    def run(self, feed: Feed) -> Outputs:
        """What the graph answers to a batch. The arrays are the caller's. A batch that fits no shape runs unbound."""
        bucket = find_bucket(self._buckets, feed)
        if bucket is None:
            return self.run_unbound(feed)
        indexes, scores = self._shapes[bucket].run(feed)
        rows, k = len(feed["item_ids"]), int(feed["k"][0])
        return indexes[:rows, :k], scores[:rows, :k]

    def run_unbound(self, feed: Feed) -> Outputs:
        """The same in the batch's own shape, launched operator by operator."""
        indexes, scores = self._session.run(OUTPUTS, dict(feed), self._free)
        return indexes, scores

    def prove(
        self, answer: Callable[[Feed], Outputs], *, item_count: int, inputs: Collection[str], tolerance: float
    ) -> None:
        """Run every shape for the first times, which captures it, and hold it to what `answer` gives.

        Raises RunsDiffer when one of them answers otherwise, and what ONNX Runtime raises.
        """
        for bucket in self._buckets:
            for seed in range(_PROOFS):
                feed = draw_feed(bucket, item_count=item_count, inputs=inputs, seed=seed)
                if not answer_alike(self._shapes[bucket].run(feed), answer(feed), tolerance=tolerance):
                    raise RunsDiffer(f"runs of {bucket.rows} rows of {bucket.length} tokens answer otherwise")


class _BoundShape:
    """The buffers of one shape, and their binding."""

    def __init__(
        self, session: onnxruntime.InferenceSession, bucket: Bucket, inputs: Collection[str], device: str, number: int
    ) -> None:
        self._session = session
        self._options = _number(number)
        self._blank = blank_feed(bucket, inputs)
        self._binding = session.io_binding()
        self._given = {}
        for name, array in self._blank.items():
            # Kernels read k on the CPU. Left there, it is no copy in the middle of the graph.
            value = _allocate(array.shape, array.dtype.type, "cpu" if name == "k" else device)
            value.update_inplace(array)
            self._binding.bind_ortvalue_input(name, value)
            self._given[name] = value
        shape = (bucket.rows, bucket.results)
        self._answers = [_allocate(shape, dtype, device) for dtype in (np.int64, np.float32)]
        for name, value in zip(OUTPUTS, self._answers, strict=True):
            self._binding.bind_ortvalue_output(name, value)

    def run(self, feed: Feed) -> Outputs:
        for name, array in pad_feed(feed, self._blank).items():
            if name != "k":
                self._given[name].update_inplace(array)  # would take any array of as many bytes: pad_feed sees to types
        self._session.run_with_iobinding(self._binding, self._options)
        indexes, scores = (np.array(value.numpy()) for value in self._answers)  # on a CPU numpy() is the buffer itself
        return indexes, scores


def answer_alike(got: Outputs, wanted: Outputs, *, tolerance: float) -> bool:
    """Whether two answers (B, K) are the same but for rounding.

    Scores may differ by `tolerance`, and items change places only with those whose scores lie so close; at the end of a
    list with items beyond it.
    """
    (indexes, scores), (wanted_indexes, wanted_scores) = got, wanted
    kept = wanted_scores != -np.inf
    if scores.shape != wanted_scores.shape or ((scores != -np.inf) != kept).any():
        return False
    apart = np.abs(np.where(kept, scores, 0) - np.where(kept, wanted_scores, 0))
    if not (apart <= tolerance).all():  # nor NaN
        return False
    same = (indexes[:, :, None] == wanted_indexes[:, None, :]) & kept[:, None, :]
    near = np.abs(np.where(kept, scores, 0)[:, :, None] - np.where(kept, wanted_scores, 0)[:, None, :]) <= tolerance
    last = np.where(kept, wanted_scores, np.inf).min(axis=1, keepdims=True)
    full = kept.all(axis=1, keepdims=True)  # or nothing lies beyond the list's end
    found = (same & near).any(axis=2) | (full & (np.abs(np.where(kept, scores, 0) - last) <= tolerance))
    return bool(found[kept].all())


def _allocate(shape: tuple[int, ...], dtype: type[np.generic], device: str) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, dtype, device)


def _number(graph_id: int) -> onnxruntime.RunOptions:
    options = onnxruntime.RunOptions()
    options.add_run_config_entry(_GRAPH_ID, str(graph_id))
    return options
