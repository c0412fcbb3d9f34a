"""Network -> ONNX graph that ranks: encoder by PyTorch's exporter, the ranking by nodes of ours (model/export).

Inputs, int32 unless said, rows aligned to the right and padded with PAD; T and X and C vary from run to run:
  item_ids   (B, T)  histories that end in [mask] (model/contract/sequence.py)
  lengths    (B)     real tokens of each row
  exclude    (R, X)  item indexes never to answer
  candidates (R, C)  the only indexes to answer; a row of PAD alone does not restrict
  k          (1)     int64, 1 <= k <= V
and of a network that reads events those of model/contract/event_inputs.py that it reads. Optional ones, which have a
default (model/export/signature.py):
  ranked            (1)     int64, R where it is less than B: how many of the first rows are ranked, the others are not
  scored_candidates (B, S)  indexes whose scores are wanted, ranked or not
  allowed           (F, W)  masks of W bytes, one for each of F ranked rows that may not have all items answered: a bit
                            for each column of the item table's whole blocks of 64, the first one the lowest, 0 forbids
  allowed_rows      (F, 1)  int64, the rows that the masks are for, each once
Outputs: `indexes` (R, K) int64 by falling score, equal scores by index; `scores` (R, K) float32, -inf once nothing is
left to rank; `candidate_scores` (B, S, 1) float32, whatever is excluded or forbidden, -inf at PAD and [mask].
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
from numpy.typing import NDArray

from model.contract import bundle, bundle_content
from model.contract.attributes import gather_attributes
from model.contract.counted import Counted
from model.contract.event_inputs import ABSENT
from model.contract.golden import Golden, golden_to_bytes
from model.contract.manifest import Manifest
from model.contract.query import INPUTS
from model.contract.rules import Rules
from model.contract.sessions import Sessions
from model.contract.vocabulary import Vocabulary
from model.export.counted import export_checked as export_counted_checked
from model.export.gru_operator import use_operators
from model.export.parity import ExportError, check_events, check_parity, make_golden
from model.export.ranking import Items, Scan, append_ranking
from model.export.rewrite import LastState, rewrite
from model.export.similar import make_similar_files
from model.nets.network import SequenceNetwork

OPSET = 20
INTEGERS_FROM = 20_000
"""Items from which on whole numbers are quicker to scan."""
GOLDEN_HISTORIES = 8
"""How many of the histories become golden examples in the bundle; all of them are checked at export."""


def export_network(network: SequenceNetwork, *, scan: Scan | None = None, rewritten: bool = True) -> bytes:
    """The ONNX file of a network, weights inside. `scan` is how items are ranked (model/export/ranking.py).

    Without a scan the size of the catalogue chooses one; rules beside the network want `plain`. All give the same
    answers, with `rewritten` layers and without; layers that model/export/rewrite.py does not know are never
    rewritten. Raises ExportError for rules under another scan.
    """
    scan = scan or choose_scan(network)
    if network.rules is not None and scan != "plain":
        raise ExportError(f"the scan {scan} cannot add the rules beside the network: publish with --item-scoring plain")
    network = use_operators(network.cpu()).eval()
    states = rewrite(network) if rewritten else LastState(network)
    model = export_states(states, max_length=network.config.max_length)
    items = Items(network.rows.detach().numpy(), network.item_bias.detach().numpy())
    append_ranking(model.graph, items, scan)
    if network.tie_embeddings:
        _share(model.graph, "network.items.weight", "rank_table")
    model.producer_name = "nextitem"
    graph = bytes(model.SerializeToString())
    onnx.checker.check_model(graph, full_check=True)
    return graph


def choose_scan(network: SequenceNetwork) -> Scan:
    """What is quickest on a CPU (docs/lab/2026-11-21-graph-steps.md) of what the network can be ranked by."""
    return "int8" if network.item_count >= INTEGERS_FROM and network.rules is None else "plain"


def export_states(states: LastState, *, max_length: int) -> onnx.ModelProto:
    """A graph of `item_ids`, `lengths` and events whose outputs are `state` (B, D) and, of rules, `lift` (B, V + 2)."""
    batch, length = torch.export.Dim("B"), torch.export.Dim("T", max=max_length)
    names = states.network.event_inputs
    tokens, rows = {0: batch, 1: length}, {0: batch}
    events = [torch.ones(2, 2, dtype=torch.from_numpy(np.array(ABSENT[name])).dtype) for name in names]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its own internals
        logging.getLogger("torch.onnx._internal.exporter").setLevel(logging.ERROR)  # of absent torchvision, too
        program = torch.onnx.export(
            states.eval(),
            (torch.ones(2, 2, dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int32), *events),
            dynamo=True,
            opset_version=OPSET,
            input_names=["item_ids", "lengths", *names],
            output_names=["state"] if states.network.rules is None else ["state", "lift"],
            dynamic_shapes=(tokens, rows) if not names else (tokens, rows, (tokens,) * len(names)),
            verbose=False,
        )
    assert program is not None  # noqa: S101 - None only with a file to write to
    return program.model_proto


def _share(graph: onnx.GraphProto, name: str, table: str) -> None:
    """Read `name` from `table`, which begins with the same rows: the file holds them once."""
    kept = [tensor for tensor in graph.initializer if tensor.name != name]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for node in graph.node:
        for position, source in enumerate(node.input):
            if source == name:
                node.input[position] = table


def publish_bundle(
    root: Path,
    network: SequenceNetwork | Counted,
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
    sessions: Sessions | None = None,
    rules: Rules | None = None,
    event_types: Sequence[str] = (),
    similar: bool = False,
    scan: Scan | None = None,
    lineage: Mapping[str, Any] | None = None,
) -> Path:
    """Export, check against PyTorch on `histories` (item indexes, oldest first), and write the bundle.

    Who answers from it is for the caller to say. `counts` (V) is how often each item occurs, `metadata` what is known
    of items by id and what they can be filtered by, `sessions` what answers without the network, `rules` what it can be
    compared with, `event_types` those that the network knows, in the order of their codes, `lineage` where a retrained
    network comes from; with `similar` it also ranks the items that are like others. Counts in place of a network have
    neither a scan nor similar items. Raises ExportError when the graph and PyTorch, or numpy, disagree; then nothing is
    written.
    """
    if isinstance(network, Counted):
        if similar or scan not in (None, "plain"):
            raise ExportError("a model that counts has no item table: leave out --similar and --item-scoring")
        graph, examples = export_counted_checked(network, vocabulary, histories, opset=OPSET)
        sizes = {"max_length": network.max_length, "width": 1, "layers": 1, "heads": 1}
        event_inputs: tuple[str, ...] = ()
    else:
        graph, examples = _export_checked(network, vocabulary, histories, scan=scan, type_count=len(event_types))
        sizes = {
            "max_length": network.config.max_length,
            "width": network.config.width,
            "layers": getattr(network.config, "layers", 1),
            "heads": getattr(network.config, "heads", 1),
        }
        event_inputs = network.event_inputs
    files = {
        bundle.NETWORK: graph,
        bundle.VOCABULARY: vocabulary.to_bytes(),
        bundle.COUNTS: bundle_content.encode_counts(counts),
        bundle.GOLDEN: golden_to_bytes(examples[: 1 + 3 * GOLDEN_HISTORIES]),
    }
    if metadata is not None:
        files[bundle.METADATA] = bundle_content.encode_metadata(vocabulary, metadata)
        files[bundle.ATTRIBUTES] = gather_attributes(vocabulary, metadata).to_bytes()
    if sessions is not None:
        files[bundle.SESSIONS] = sessions.to_bytes()
    if rules is not None:
        files[bundle.RULES] = rules.to_bytes()
    if event_types:
        files[bundle.EVENT_TYPES] = bundle_content.encode_types(event_types)
    if similar and not isinstance(network, Counted):
        files |= make_similar_files(
            network.rows.detach().numpy(),
            vocabulary,
            [vocabulary.decode(history) for history in histories],
            scan=scan or ("int8" if len(vocabulary) >= INTEGERS_FROM else "plain"),
            opset=OPSET,
            kept=1 + 3 * GOLDEN_HISTORIES,
        )
    described = {file: bundle.describe_file(content) for file, content in files.items()}
    digest = hashlib.sha256("".join(described[file].sha256 for file in sorted(described)).encode()).hexdigest()
    manifest = Manifest(
        name=name,
        version=f"{trained_at:%Y%m%dT%H%M%S}-{digest[:8]}",
        item_count=len(vocabulary),
        **sizes,
        trained_at=f"{trained_at:%Y-%m-%dT%H:%M:%SZ}",
        last_event_at=last_event_at,
        data_fingerprint=data_fingerprint,
        metrics=dict(metrics),
        inputs=(*INPUTS, *event_inputs),
        files=described,
        lineage=lineage,
    )
    return bundle.write_bundle(root, manifest, files)


def _export_checked(
    network: SequenceNetwork,
    vocabulary: Vocabulary,
    histories: Sequence[Sequence[int]],
    *,
    scan: Scan | None,
    type_count: int,
) -> tuple[bytes, list[Golden]]:
    """The graph, and PyTorch's answers that it was checked against. Raises ExportError where they disagree."""
    graph = export_network(network, scan=scan)
    examples = make_golden(network, vocabulary, [vocabulary.decode(history) for history in histories])
    check_parity(graph, examples, vocabulary, max_length=network.config.max_length, inputs=network.event_inputs)
    if network.event_inputs:
        check_events(graph, network, vocabulary, histories, type_count=type_count)
    return graph, examples
