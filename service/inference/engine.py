"""The engine: wraps ONNX Runtime behind one function that takes and returns numpy arrays."""

import logging
import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.contract.query import CANDIDATE_SCORES, INPUTS, OPTIONAL, OUTPUTS, SCORED, select_rows, skip_ranking
from model.contract.similar import CANDIDATE_ROWS
from service.errors import EngineUnavailable, ModelRefused, StartFailed
from service.inference.cuda_graphs import CudaGraphRunner, RunsDiffer, without_graph
from service.inference.length_groups import group_by_length, run_cost_tokens
from service.inference.shape_buckets import Bucket

RUNTIME_VERSION: str = onnxruntime.__version__
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
CUDA_OPTIONS = {"use_tf32": "0"}
"""TF32 is off: with it GPUs multiply float32 with a 10-bit mantissa, which, emulated, moved scores by .014."""
CUDA_TOLERANCE = 1e-3
"""Tolerance between a score on a GPU and the trainer's. A GPU sums in another order than a CPU."""

_log = logging.getLogger(__name__)


class Ranked(NamedTuple):
    """`indexes` (B, K) by falling score and `scores` (B, K), -inf where nothing was left to rank."""

    indexes: NDArray[np.int64]
    scores: NDArray[np.float32]


class Engine:
    """A loaded network. `provider` is the execution provider that its session uses.

    With CUDA graphs it belongs to the thread that loaded it (service/inference/cuda_graphs.py).
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        *,
        item_count: int,
        graphs: CudaGraphRunner | None = None,
        scores_candidates: bool = False,
        takes_masks: bool = False,
    ) -> None:
        self._session = session
        self._graphs = graphs
        self.scores_candidates = scores_candidates
        """Whether the network has the output that `score` reads. Bundles of earlier versions lack it."""
        self.takes_masks = takes_masks
        """Whether the network has the inputs for masks. Bundles of earlier versions lack them."""
        self._item_count = item_count
        self.provider: str = session.get_providers()[0]
        self.skips_ranking = scores_candidates and self.provider == CPU and graphs is None
        """Whether `score` scores candidates alone. Whether CUDA's kernels take no rows is unknown, and captured runs
        are quicker than others there."""
        self._run_tokens = run_cost_tokens(item_count)

    def rank(self, feed: Mapping[str, NDArray[Any]]) -> Ranked:
        """Rank a batch. On a CPU it splits the batch into length groups where that saves more than it costs.

        Raises EngineUnavailable if a run fails or returns invalid output. Releases the GIL while it runs.
        """
        if len(feed["lengths"]) == 1:
            return self._run(feed)
        groups = self._group(feed["lengths"])
        if len(groups) == 1:
            return self._run(feed)
        parts = [self._run(select_rows(feed, rows)) for rows in groups]
        back = np.argsort(np.concatenate(groups))
        return Ranked(*(np.concatenate(arrays)[back] for arrays in zip(*parts, strict=True)))

    def score(self, feed: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Scores (B, C) of a batch's candidates, -inf at PAD and MASK; of no other item where `skips_ranking`.

        Raises EngineUnavailable as `rank` does. Releases the GIL while it runs. Needs `scores_candidates`.
        """
        lengths = feed["lengths"]
        groups = group_by_length(lengths, run_tokens=run_cost_tokens(0)) if self.provider != CUDA else []
        if len(groups) <= 1:
            return self._score(feed)
        parts = [self._score(select_rows(feed, rows)) for rows in groups]
        scores: NDArray[np.float32] = np.concatenate(parts)[np.argsort(np.concatenate(groups))]
        return scores

    def read_rows(self, feed: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """The rows (B, C, D) of a batch's candidates. Only of a graph of similar items (model/contract/similar.py).

        Raises EngineUnavailable as `rank` does.
        """
        rows: NDArray[np.float32]
        with _engine_errors:
            (rows,) = self._session.run([CANDIDATE_ROWS], skip_ranking(feed))
        if rows.ndim != 3 or rows.shape[:2] != feed["candidates"].shape or not np.isfinite(rows).all():
            raise EngineUnavailable("the graph's rows are not those of the items that were named")
        return rows

    def release(self) -> None:
        """Free the session and its memory, on the thread that runs it. The engine answers no more."""
        del self._session
        self._graphs = None

    def _group(self, lengths: NDArray[np.int32]) -> list[NDArray[np.intp]]:
        if self.provider != CUDA and self._graphs is None:
            return group_by_length(lengths, run_tokens=self._run_tokens)
        step = len(lengths) if self._graphs is None else self._graphs.max_rows
        return [np.arange(first, min(first + step, len(lengths))) for first in range(0, len(lengths) or 1, step or 1)]

    def _run(self, feed: Mapping[str, NDArray[Any]]) -> Ranked:
        with _engine_errors:
            indexes, scores = self._session.run(OUTPUTS, dict(feed)) if self._graphs is None else self._graphs.run(feed)
        if indexes.shape != scores.shape or len(indexes) != len(feed["item_ids"]):
            raise EngineUnavailable("the graph's output has another shape than its input asks for")
        if not math.isfinite(scores.sum()):  # one pass; whatever is not finite makes the sum so, too
            kept = scores != -np.inf  # -inf marks excluded items, which are not part of the answer
            if not np.isfinite(scores[kept]).all():
                raise EngineUnavailable("the graph's scores are not finite")
            items = indexes[kept]
        else:
            items = indexes
        if items.size and (items - 1).view(np.uint64).max() >= self._item_count:  # without a sign 0 is the largest
            raise EngineUnavailable("the graph returned an index that is no item")
        return Ranked(indexes, scores)

    def _score(self, feed: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        asked = skip_ranking(feed) if self.skips_ranking else {**feed, SCORED: feed["candidates"]}
        scores: NDArray[np.float32]
        with _engine_errors:
            (scores,) = self._session.run([CANDIDATE_SCORES], asked, without_graph())
        named = feed["candidates"]
        if scores.shape != (*named.shape, 1):
            raise EngineUnavailable("the graph's output has another shape than its input asks for")
        scores = scores[..., 0]
        if not np.isfinite(scores[(named > 0) & (named <= self._item_count)]).all():
            raise EngineUnavailable("the graph's scores are not finite")
        return scores


def may_use_gpu(provider: Literal["auto", "cuda", "cpu"]) -> bool:
    """Whether the GPU package is installed and allowed. Only opening a session shows whether the GPU works."""
    return provider != "cpu" and CUDA in onnxruntime.get_available_providers()


def open_engine(
    network: bytes,
    *,
    item_count: int,
    provider: Literal["auto", "cuda", "cpu"],
    threads: int,
    inputs: Collection[str] = INPUTS,
    buckets: Sequence[Bucket] = (),
) -> Engine:
    """Load a network with the given inputs. Raises StartFailed if it cannot be loaded, or not on this provider.

    On a GPU, runs for `buckets` are captured as CUDA graphs if possible. The engine then belongs to this thread.
    """
    session = _open_session(network, provider=provider, threads=threads)
    names, outputs = ({entry.name for entry in listed} for listed in (session.get_inputs(), session.get_outputs()))
    if names != set(inputs) or not set(OUTPUTS) <= outputs:
        raise ModelRefused(
            "format", "the bundle's network has other inputs or outputs than this version serves: export it again"
        )
    optional = {entry.name for entry in session.get_overridable_initializers()}
    knows_all = set(OPTIONAL) <= optional and CANDIDATE_SCORES in outputs
    uncaptured = Engine(session, item_count=item_count, scores_candidates=knows_all, takes_masks=knows_all)
    if uncaptured.provider != CUDA or not buckets:
        return uncaptured
    return (
        _capture(network, uncaptured, threads=threads, item_count=item_count, inputs=inputs, buckets=buckets)
        or uncaptured
    )


def _capture(
    network: bytes,
    uncaptured: Engine,
    *,
    threads: int,
    item_count: int,
    inputs: Collection[str],
    buckets: Sequence[Bucket],
) -> Engine | None:
    """The same engine with captured runs for `buckets`, which must answer as `plain` does. None where it cannot be.

    Capturing is tried here, at the start, so that no request pays for a capture or meets a failed one.
    """
    tried = "ONNX Runtime refuses this network"
    try:
        session = onnxruntime.InferenceSession(
            network,
            _make_options(threads),
            providers=[(CUDA, CUDA_OPTIONS | {"enable_cuda_graph": "1"}), CPU],
            enable_fallback=0,
        )
        session.disable_fallback()
        tried = "a run fails"
        graphs = CudaGraphRunner(session, buckets, inputs=inputs, device="cuda")
        # Each of the two answers may be off by CUDA_TOLERANCE.
        graphs.verify(uncaptured.rank, item_count=item_count, inputs=inputs, tolerance=2 * CUDA_TOLERANCE)
    except Exception as error:  # noqa: BLE001 - its exceptions share no other base
        _log.warning(
            "No CUDA graphs: %s (%s). Runs are slower, launched operator by operator; see docs/how-to/gpu.md for the "
            "bundles that can be captured",
            str(error) if isinstance(error, RunsDiffer) else tried,
            type(error).__name__,
        )
        return None
    _log.info("Captured CUDA graphs for %d shapes", len(buckets))
    return Engine(
        session,
        item_count=item_count,
        graphs=graphs,
        scores_candidates=uncaptured.scores_candidates,
        takes_masks=uncaptured.takes_masks,
    )


def _make_options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning threads would occupy the cores
    # Without it, x86 CPUs without VNNI saturate sums of products at 16 bits. Networks exported now stay below that
    # (model/export/int8_scan.py), those exported by earlier versions do not.
    options.add_session_config_entry("session.x64quantprecision", "1")
    # A network loaded from memory could still name unverified weight files in the working directory. No file can lie
    # below /dev/null.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    options.log_severity_level = 3  # its warnings are nothing that an operator can act on
    return options


def _open_session(
    network: bytes, *, provider: Literal["auto", "cuda", "cpu"], threads: int
) -> onnxruntime.InferenceSession:
    wanted: list[str | tuple[str, dict[str, str]]] = [CPU]
    if may_use_gpu(provider):
        wanted = [(CUDA, CUDA_OPTIONS), CPU]
        onnxruntime.preload_dlls()
    elif provider == "cuda":
        raise StartFailed("--provider cuda needs the package onnxruntime-gpu: install nextitem[service-gpu]")
    try:
        with _engine_errors:
            session = onnxruntime.InferenceSession(network, _make_options(threads), providers=wanted)
    except EngineUnavailable as error:
        raise ModelRefused("engine", f"the bundle's network cannot be loaded: {error}") from error
    session.disable_fallback()  # else a failed run on the GPU would reload the model on the CPU, within a request
    used = session.get_providers()[0]
    if provider == "cuda" and used != CUDA:
        raise StartFailed(f"--provider cuda found no GPU that ONNX Runtime can use; it offers {used}")
    if provider == "auto" and used != CUDA:
        _log.info("No GPU is in use: the model runs on the CPU")
    return session


class _EngineErrors:
    """Turns any exception of ONNX Runtime into EngineUnavailable, with its type but without its text."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):  # its exceptions share no other base
            raise EngineUnavailable(f"ONNX Runtime failed ({type(error).__name__})") from error


_engine_errors = _EngineErrors()
