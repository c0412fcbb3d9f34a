"""ONNX Runtime behind one function: numpy in, numpy out, and only our exceptions."""

import contextlib
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.contract.behaviour import ABSENT
from model.contract.question import INPUTS, OUTPUTS
from service.errors import EngineUnavailable, StartFailed
from service.padding import cut_by_length, price_run

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"

_log = logging.getLogger(__name__)


class Ranked(NamedTuple):
    """`indexes` (B, K) by falling score and `scores` (B, K), -inf where nothing was left to rank."""

    indexes: NDArray[np.int64]
    scores: NDArray[np.float32]


class Engine:
    """A loaded graph. `provider` is the one that its session really uses."""

    def __init__(self, session: onnxruntime.InferenceSession, *, item_count: int) -> None:
        self._session = session
        self._item_count = item_count
        self.provider: str = session.get_providers()[0]
        self._run_tokens = price_run(item_count)

    def rank(self, feed: Mapping[str, NDArray[Any]]) -> Ranked:
        """Answer a batch. On a CPU short histories run apart from long ones where that spares more than it costs.

        Raises EngineUnavailable when a run fails or answers nonsense. Releases the GIL while it runs.
        """
        if len(feed["lengths"]) == 1 or self.provider == CUDA:
            return self._run(feed)
        groups = cut_by_length(feed["lengths"], run_tokens=self._run_tokens)
        if len(groups) == 1:
            return self._run(feed)
        parts = [self._run(_pick(feed, rows)) for rows in groups]
        back = np.argsort(np.concatenate(groups))
        return Ranked(*(np.concatenate(arrays)[back] for arrays in zip(*parts, strict=True)))

    def _run(self, feed: Mapping[str, NDArray[Any]]) -> Ranked:
        with _engine_errors():
            indexes, scores = self._session.run(OUTPUTS, dict(feed))
        if indexes.shape != scores.shape or len(indexes) != len(feed["item_ids"]):
            raise EngineUnavailable("the graph's answer has another shape than its question")
        if not np.isfinite(scores).all():
            kept = scores != -np.inf  # what is left out is no answer, whatever stands there
            if not np.isfinite(scores[kept]).all():
                raise EngineUnavailable("the graph's scores are not finite")
            items = indexes[kept]
        else:
            items = indexes
        if items.size and not 1 <= items.min() <= items.max() <= self._item_count:
            raise EngineUnavailable("the graph answers with what is no item")
        return Ranked(indexes, scores)


def _pick(feed: Mapping[str, NDArray[Any]], rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    """Some rows of a batch, without columns that are padding in all of them."""
    picked = {name: value if name == "k" else value[rows] for name, value in feed.items()}
    T = int(picked["lengths"].max())
    return picked | {name: picked[name][:, -T:] for name in ("item_ids", *ABSENT) if name in picked}


def open_engine(
    network: bytes,
    *,
    item_count: int,
    provider: Literal["auto", "cuda", "cpu"],
    threads: int,
    inputs: Collection[str] = INPUTS,
) -> Engine:
    """Load a graph of such inputs. Raises StartFailed when it cannot be loaded, or not on the provider asked for."""
    session = _open_session(network, provider=provider, threads=threads)
    names = {entry.name for entry in session.get_inputs()}
    if names != set(inputs) or not set(OUTPUTS) <= {entry.name for entry in session.get_outputs()}:
        raise StartFailed("the bundle's network has other inputs or outputs than this version serves: export it again")
    return Engine(session, item_count=item_count)


def _open_session(
    network: bytes, *, provider: Literal["auto", "cuda", "cpu"], threads: int
) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads would take the cores
    # Loaded from memory, a graph could still name files with its weights, which nobody verified, and from the working
    # directory. Nothing lies in a folder that is none.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    options.log_severity_level = 3  # its warnings say nothing that an operator could act on
    wanted = [CPU]
    if provider != "cpu":
        # Whether CUDA is on this list says which package is installed; only the session says what works.
        if CUDA in onnxruntime.get_available_providers():
            wanted = [CUDA, CPU]
            onnxruntime.preload_dlls()
        elif provider == "cuda":
            raise StartFailed("--provider cuda needs the package onnxruntime-gpu: install nextitem[service-gpu]")
    try:
        with _engine_errors():
            session = onnxruntime.InferenceSession(network, options, providers=wanted)
    except EngineUnavailable as error:
        raise StartFailed(f"the bundle's network cannot be loaded: {error}") from error
    used = session.get_providers()[0]
    if provider == "cuda" and used != CUDA:
        raise StartFailed(f"--provider cuda found no GPU that ONNX Runtime can use; it offers {used}")
    if provider == "auto" and used != CUDA:
        _log.info("No GPU is in use: the model runs on the CPU")
    return session


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    """Turn whatever ONNX Runtime raises into EngineUnavailable, keeping its kind and not its text."""
    try:
        yield
    except Exception as error:  # its exceptions share no other base
        raise EngineUnavailable(f"ONNX Runtime failed ({type(error).__name__})") from error
