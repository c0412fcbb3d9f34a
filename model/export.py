"""Network -> ONNX graph that ranks: encoder, exclusion, candidates and top-k inside, so that k numbers leave it, not V.

Inputs, int32 unless said; T and X and C vary from run to run:
  item_ids   (B, T)  right-aligned histories that end in [mask], left-padded with PAD (model/contract/sequence.py)
  lengths    (B)     real tokens of each row
  exclude    (B, X)  item indexes never to answer, padded with PAD
  candidates (B, C)  the only indexes to answer, padded with PAD; a row of PAD alone does not restrict
  k          (1)     int64, 1 <= k <= V
Outputs: `indexes` (B, K) int64 by falling score, equal scores by index; `scores` (B, K) float32, -inf once nothing is
left to rank.
"""

import hashlib
import logging
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import Tensor, nn

from model.contract import bundle
from model.contract.golden import golden_to_bytes
from model.contract.manifest import Manifest
from model.contract.question import INPUTS
from model.contract.vocabulary import Vocabulary
from model.nets.network import SequenceNetwork
from model.parity import check_parity, make_golden
from model.recurrent import use_operators

OPSET = 20
GOLDEN_HISTORIES = 8
"""How many of the histories become golden examples in the bundle; all of them are checked at export."""


class _Scores(nn.Module):
    """The network as (B, T), (B) -> (B, V + 2): one column for every row of the item table, -inf at PAD and MASK."""

    bias: Tensor

    def __init__(self, network: SequenceNetwork) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("bias", F.pad(network.item_bias.detach(), (1, 1), value=-torch.inf))

    def forward(self, item_ids: Tensor, lengths: Tensor) -> Tensor:
        hidden = self.network.encode(item_ids, lengths)[:, -1]
        scores = F.linear(self.network.read_head(hidden), self.network.rows, self.bias)
        return scores if self.network.rules is None else scores + self.network.rules(item_ids)


def export_network(network: SequenceNetwork) -> bytes:
    """The ONNX file of a network, weights inside."""
    scores = _Scores(use_operators(network.cpu())).eval()
    batch, length = torch.export.Dim("B"), torch.export.Dim("T", max=network.config.max_length)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own internals
        logging.getLogger("torch.onnx._internal.exporter").setLevel(logging.ERROR)  # of absent torchvision, too
        program = torch.onnx.export(
            scores,
            (torch.ones(2, 2, dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int32)),
            dynamo=True,
            opset_version=OPSET,
            input_names=["item_ids", "lengths"],
            output_names=["item_scores"],
            dynamic_shapes=({0: batch, 1: length}, {0: batch}),
            verbose=False,
        )
    assert program is not None  # noqa: S101 - None only with a file to write to
    graph = program.model_proto
    _append_ranking(graph.graph)
    graph.producer_name = "nextitem"
    onnx.checker.check_model(graph, full_check=True)
    return bytes(graph.SerializeToString())


def _append_ranking(graph: onnx.GraphProto) -> None:
    """Rank `item_scores` (B, V + 2) inside the graph."""
    del graph.output[:]
    graph.input.extend(
        [
            helper.make_tensor_value_info("exclude", TensorProto.INT32, ["B", "X"]),
            helper.make_tensor_value_info("candidates", TensorProto.INT32, ["B", "C"]),
            helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
        ]
    )
    graph.output.extend(
        [
            helper.make_tensor_value_info("indexes", TensorProto.INT64, ["B", "K"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["B", "K"]),
        ]
    )
    graph.initializer.extend(
        [
            helper.make_tensor("never", TensorProto.FLOAT, [], [-np.inf]),
            helper.make_tensor("rank_pad", TensorProto.INT32, [], [0]),
            helper.make_tensor("columns", TensorProto.INT64, [1], [1]),
        ]
    )

    def add(op: str, inputs: list[str], output: str, **attributes: Any) -> None:  # noqa: ANN401 - ONNX's own freedom
        graph.node.append(helper.make_node(op, inputs, [output], name=f"rank_{output}", **attributes))

    add("Shape", ["exclude"], "exclude_shape")
    add("Expand", ["never", "exclude_shape"], "exclude_scores")
    add("ScatterElements", ["item_scores", "exclude", "exclude_scores"], "after_exclusion", axis=1)
    false = helper.make_tensor("false", TensorProto.BOOL, [1], [False])
    true = helper.make_tensor("true", TensorProto.BOOL, [1], [True])
    add("Shape", ["item_scores"], "table_shape")
    add("ConstantOfShape", ["table_shape"], "nowhere", value=false)
    add("Shape", ["candidates"], "candidates_shape")
    add("ConstantOfShape", ["candidates_shape"], "everywhere", value=true)
    add("ScatterElements", ["nowhere", "candidates", "everywhere"], "named", axis=1)
    add("ReduceMax", ["candidates", "columns"], "highest_candidate", keepdims=1)
    add("Equal", ["highest_candidate", "rank_pad"], "unrestricted")
    add("Or", ["named", "unrestricted"], "allowed")
    add("Where", ["allowed", "after_exclusion", "never"], "ranked")
    graph.node.append(helper.make_node("TopK", ["ranked", "k"], ["scores", "indexes"], name="rank_top_k", axis=1))


def publish_bundle(
    root: Path,
    network: SequenceNetwork,
    *,
    name: str,
    vocabulary: Vocabulary,
    counts: NDArray[np.int64],
    trained_at: datetime,
    last_event_at: str | None,
    data_fingerprint: str,
    metrics: Mapping[str, float],
    histories: Sequence[Sequence[int]],
    metadata: Mapping[str, Mapping[str, object]] | None = None,
) -> Path:
    """Export, check against PyTorch on `histories` (item indexes, oldest first), write the bundle and make it current.

    `counts` (V) is how often each item occurs, `metadata` what is known of items by id. Raises ExportError when the
    graph and PyTorch disagree; then nothing is written.
    """
    graph = export_network(network)
    examples = make_golden(network, vocabulary, [vocabulary.decode(history) for history in histories])
    check_parity(graph, examples, vocabulary, max_length=network.config.max_length)
    files = {
        bundle.NETWORK: graph,
        bundle.VOCABULARY: vocabulary.to_bytes(),
        bundle.COUNTS: bundle.encode_counts(counts),
        bundle.GOLDEN: golden_to_bytes(examples[: 1 + 3 * GOLDEN_HISTORIES]),
    }
    if metadata is not None:
        files[bundle.METADATA] = bundle.encode_metadata(vocabulary, metadata)
    described = {file: bundle.describe_file(content) for file, content in files.items()}
    digest = hashlib.sha256("".join(described[file].sha256 for file in sorted(described)).encode()).hexdigest()
    config = network.config
    manifest = Manifest(
        name=name,
        version=f"{trained_at:%Y%m%dT%H%M%S}-{digest[:8]}",
        item_count=len(vocabulary),
        max_length=config.max_length,
        width=config.width,
        layers=getattr(config, "layers", 1),
        heads=getattr(config, "heads", 1),
        trained_at=f"{trained_at:%Y-%m-%dT%H:%M:%SZ}",
        last_event_at=last_event_at,
        data_fingerprint=data_fingerprint,
        metrics=dict(metrics),
        inputs=INPUTS,
        files=described,
    )
    folder = bundle.write_bundle(root, manifest, files)
    bundle.point_current(root, manifest.version)
    return folder
