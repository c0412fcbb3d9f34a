"""The graphs that are compared: from the plain export that returns every score to the one that is published."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness.cases import Feed, K, export_scores
from model.contract.query import OUTPUTS
from model.export.graph import export_network, export_states
from model.export.rewrite import LastState, rewrite
from model.nets.network import SequenceNetwork
from service.inference.cuda_graphs import CudaGraphRunner
from service.inference.engine import open_engine
from service.inference.shape_buckets import Bucket, list_buckets

RANKED, SCORED = "plain export, sorted by numpy", "its scores alone"
"""The two that the others are held to; the second is no answer yet."""
Run = Callable[[Feed], list[NDArray[Any]]]


def open_encoders(network: SequenceNetwork, threads: int) -> dict[str, Run]:
    """The state at [mask] alone, without items to rank."""
    length = network.config.max_length
    steps: dict[str, LastState] = {"plain encoder": LastState(network)}
    if not network.causal:  # PyTorch's exporter fixes the batch of a causal mask that is cut to some places
        steps["last layer at [mask] alone"] = _AtMask(network)
    steps["keys, values absorbed; tokens as rows"] = rewrite(network)
    return {name: _open(export_states(step, max_length=length), threads, ["state"]) for name, step in steps.items()}


def open_graphs(network: SequenceNetwork, threads: int) -> dict[str, Run]:
    """Whole answers, but for the second: what the first one's graph takes of it. Numpy excludes and sorts the rest.

    Whoever wants ten items of the plain export has all scores to sort, so that the first is what others are held to.
    """
    scored = _open(export_scores(network), threads, ["scores"])
    return {
        RANKED: _sort_outside(scored),
        SCORED: scored,
        "top-k inside": _open(export_network(network, scan="plain", rewritten=False), threads, OUTPUTS),
        "rewritten encoder": _open(export_network(network, scan="plain"), threads, OUTPUTS),
        "best score of each block": _open(export_network(network, scan="float32"), threads, OUTPUTS),
        "whole numbers, scored again": _open(export_network(network, scan="int8"), threads, OUTPUTS),
    }


def open_batches(network: SequenceNetwork, threads: int) -> dict[str, Run]:
    """The published graph on batches of mixed lengths, padded by the longest or as the service cuts them."""
    graph = export_network(network)
    engine = open_engine(graph, item_count=network.item_count, provider="cpu", threads=threads)
    return {"one run, padded": _open(graph, threads, OUTPUTS), "cut by length": lambda feed: list(engine.rank(feed))}


def open_bound(network: SequenceNetwork, threads: int) -> dict[str, Run]:
    """The published graph run as ever, from buffers of the batch's own shape, and in the shapes that a GPU runs."""
    session = _open_session(export_network(network), threads)
    items, N = network.item_count, network.config.max_length
    own: dict[Bucket, CudaGraphRunner] = {}

    def run_own(feed: Feed) -> list[NDArray[Any]]:
        (rows, length), (k,) = feed["item_ids"].shape, feed["k"].tolist()
        bucket = Bucket(rows, length, feed["exclude"].shape[1], feed["candidates"].shape[1], k)
        if bucket not in own:
            own[bucket] = CudaGraphRunner(session, [bucket], device="cpu")
        return list(own[bucket].run(feed))

    few = CudaGraphRunner(session, list_buckets(max_batch=32, max_length=N, item_count=items), device="cpu")
    return {
        "run": lambda feed: session.run(OUTPUTS, feed),
        "bound, in its own shape": run_own,
        "bound, in a GPU's shapes": lambda feed: list(few.run(feed)),
    }


class _AtMask(LastState):
    """The last layer at the last column, by PyTorch's own layers."""

    def forward(self, item_ids: Tensor, lengths: Tensor, *_: Tensor) -> Tensor:
        last = torch.full((item_ids.shape[0], 1), item_ids.shape[1] - 1)
        return self.network.read_head(self.network.encode(item_ids, lengths, last)[:, 0])


def _open(model: onnx.ModelProto | bytes, threads: int, outputs: list[str] | tuple[str, ...]) -> Run:
    session = _open_session(model if isinstance(model, bytes) else model.SerializeToString(), threads)
    names = {value.name for value in session.get_inputs()}
    return lambda feed: session.run(outputs, {name: value for name, value in feed.items() if name in names})


def _open_session(graph: bytes, threads: int) -> onnxruntime.InferenceSession:
    """A session with the service's settings (service/inference/engine.py)."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _sort_outside(run: Run) -> Run:
    def answer(feed: Feed) -> list[NDArray[Any]]:
        (scores,) = run(feed)
        np.put_along_axis(scores, feed["exclude"].astype(np.int64), -np.inf, axis=1)
        best = np.argpartition(-scores, K, axis=1)[:, :K]
        found = np.take_along_axis(scores, best, axis=1)
        order = np.argsort(-found, axis=1, kind="stable")
        return [np.take_along_axis(best, order, axis=1), np.take_along_axis(found, order, axis=1)]

    return answer
