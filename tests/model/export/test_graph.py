"""ONNX = PyTorch: the graph ranks as the network does, whatever the batch, and a graph that does not is refused."""

import json
from datetime import UTC, datetime

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper

from model.contract.bundle import read_bundle
from model.contract.query import CANDIDATE_SCORES, INPUTS, OPTIONAL, encode_question, skip_ranking, stack_questions
from model.export.graph import INTEGERS_FROM, OPSET, choose_scan, export_network, publish_bundle
from model.export.parity import ExportError, check_parity, make_golden
from model.nets.network import SequenceNetwork
from model.nets.registry import make_network
from model.nets.rules import SequentialRules

MAX_LENGTH = 12


@pytest.fixture(
    scope="module",
    params=[
        ("bert4rec", "int8"),
        ("sasrec", "float32"),
        *((name, None) for name in ("gru4rec", "caser-history", "fmc")),
    ],
    ids=str,
)
def kind(request):
    """A network and how its items are ranked."""
    return request.param


@pytest.fixture(scope="module")
def network(kind, make_small):
    """Each network, as its paper has it."""
    return make_small(kind[0])


@pytest.fixture(scope="module")
def graph(kind, network):
    """The exported network."""
    return export_network(network, scan=kind[1])


@pytest.fixture(scope="module")
def session(graph):
    """ONNX Runtime on that graph."""
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def histories(vocabulary):
    """Two hundred histories of random items, from empty to far beyond the window."""
    draw = np.random.default_rng(3)
    return [vocabulary.decode(draw.integers(1, 61, size=draw.integers(0, 40)).tolist()) for _ in range(200)]


def rank(session, vocabulary, histories, *, exclude=None, candidates=None, k=10):
    """Ask the graph about a batch of histories."""
    none = [()] * len(histories)
    questions = [
        encode_question(vocabulary, history=history, exclude=excluded, candidates=allowed or None, k=k)
        for history, excluded, allowed in zip(histories, exclude or none, candidates or none, strict=True)
    ]
    feed = stack_questions(questions, max_length=MAX_LENGTH, mask_index=vocabulary.mask_index)
    return session.run(["indexes", "scores"], feed)


def test_graph_answers_as_the_network(graph, network, vocabulary, histories):
    """Two hundred random histories, plain, with exclusion and with candidates, alone and batched."""
    examples = make_golden(network, vocabulary, histories)
    assert len(examples) == 601
    check_parity(graph, examples, vocabulary, max_length=MAX_LENGTH)


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("gru4rec", {"layers": 3}),
        ("caser-history", {"window": 1}),
        ("cbow", {}),
        ("skip-gram", {}),
        ("sasrec", {"tie_embeddings": False}),
    ],
    ids=str,
)
def test_other_shapes_export(make_small, vocabulary, histories, name, switches):
    """More recurrent layers, filters of one item alone, means, and an output table of its own."""
    network = make_small(name, **switches)
    check_parity(
        export_network(network), make_golden(network, vocabulary, histories[:5]), vocabulary, max_length=MAX_LENGTH
    )


@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
def test_every_switch_exports(make_small, vocabulary, histories, switches, name):
    """Ablated networks answer from their graphs as they do in PyTorch, empty histories among the questions.

    With one layer, but as the paper has it: an export takes seconds, each layer more of them.
    """
    if switches and make_small(name, **switches).config == make_small(name).config:
        pytest.skip("as its paper has it: {} exports it, and an export takes seconds")
    network = make_small(name, **({"layers": 1} | switches if switches else {}))
    check_parity(
        export_network(network), make_golden(network, vocabulary, histories[:5]), vocabulary, max_length=MAX_LENGTH
    )


def test_the_plain_export_answers_alike(make_small, vocabulary, histories):
    """What benchmarks compare with is held to the same answers."""
    network = make_small("bert4rec", layers=1)
    graph = export_network(network, scan="plain", rewritten=False)
    check_parity(graph, make_golden(network, vocabulary, histories[:5]), vocabulary, max_length=MAX_LENGTH)
    assert len(onnx.load_from_string(graph).graph.node) > len(onnx.load_from_string(export_network(network)).graph.node)


def test_large_catalogues_are_scanned_in_whole_numbers():
    """The size chooses, and rules beside the network, which only the plain scan adds."""
    small, large = (make_network("sasrec", item_count=count, width=2) for count in (INTEGERS_FROM - 1, INTEGERS_FROM))
    assert isinstance(small, SequenceNetwork)
    assert isinstance(large, SequenceNetwork)
    assert (choose_scan(small), choose_scan(large)) == ("plain", "int8")
    large.rules = SequentialRules(INTEGERS_FROM, 1)
    assert choose_scan(large) == "plain"


def test_items_are_stored_once(graph, network):
    """The table that tokens are read from is the one that scores are made with."""
    table = network.items.weight.detach().numpy()
    tensors = [numpy_helper.to_array(tensor) for tensor in onnx.load_from_string(graph).graph.initializer]
    same = [np.array_equal(tensor[: len(table)], table) for tensor in tensors if tensor.shape[1:] == table.shape[1:]]
    assert sum(same) == 1


def test_batched_is_single(session, vocabulary, histories):
    """A row of a batch has the answer that it has alone."""
    indexes, scores = rank(session, vocabulary, histories[:32])
    for row, history in enumerate(histories[:32]):
        alone_indexes, alone_scores = rank(session, vocabulary, [history])
        np.testing.assert_array_equal(indexes[row], alone_indexes[0])
        np.testing.assert_allclose(scores[row], alone_scores[0], atol=1e-5)


def test_candidates_score_alike_alone_batched_and_ranked(session, vocabulary, histories):
    """Scored without a ranking, alone and in a batch of other lengths, they have the scores that the ranking gives."""
    named = [vocabulary.decode(np.random.default_rng(row).permutation(60)[: 1 + row % 9] + 1) for row in range(32)]
    questions = [
        encode_question(vocabulary, history=history, exclude=(), candidates=items, k=60)
        for history, items in zip(histories, named, strict=False)
    ]
    feed = stack_questions(questions, max_length=MAX_LENGTH, mask_index=vocabulary.mask_index)
    (together,) = session.run([CANDIDATE_SCORES], skip_ranking(feed))
    indexes, scores = rank(session, vocabulary, histories[:32], candidates=named, k=60)
    for row, question in enumerate(questions):
        assert question.candidates is not None
        alone = stack_questions([question], max_length=MAX_LENGTH, mask_index=vocabulary.mask_index)
        (found,) = session.run([CANDIDATE_SCORES], skip_ranking(alone))
        np.testing.assert_allclose(together[row, -found.shape[1] :], found[0], atol=1e-5)
        ranked = dict(zip(indexes[row].tolist(), scores[row].tolist(), strict=True))
        assert found[0, :, 0].tolist() == pytest.approx(
            [ranked[index] for index in question.candidates.tolist()], abs=1e-4
        )


def test_excluded_items_never_come_back(session, vocabulary, histories):
    """Nothing excluded is answered, and k is filled from the rest."""
    indexes, scores = rank(session, vocabulary, histories[:20], exclude=histories[:20], k=15)
    for row, history in zip(indexes, histories[:20], strict=True):
        assert not set(vocabulary.decode(row)) & set(history)
    assert np.isfinite(scores).all()


def test_candidates_restrict_row_by_row(session, vocabulary):
    """One row is restricted, its neighbour is not."""
    indexes, scores = rank(session, vocabulary, [["i1"], ["i1"]], candidates=[["i5", "i9"], []], k=3)
    kept = np.isfinite(scores)
    assert set(vocabulary.decode(indexes[0][kept[0]])) == {"i5", "i9"}
    assert kept[1].all()


def test_nothing_left_is_minus_infinity(session, vocabulary):
    """Excluded candidates, and candidates that no one knows, leave no finite score."""
    _, scores = rank(session, vocabulary, [["i1"]] * 2, exclude=[["i5"], []], candidates=[["i5"], ["?"]], k=4)
    assert np.isneginf(scores).all()


def test_whole_catalogue_has_neither_pad_nor_mask(session, vocabulary):
    """With k = V every item stands once; PAD and MASK never do."""
    indexes, scores = rank(session, vocabulary, [["i1", "i2"]], k=500)
    assert sorted(indexes[0].tolist()) == list(range(1, 61))
    assert (np.diff(scores[0]) <= 0).all()


@pytest.mark.parametrize("scan", ["plain", "float32", "int8"])
def test_equal_scores_stand_in_the_order_of_ids(make_small, vocabulary, scan):
    """Items with one and the same embedding and bias tie, and the lower id comes first, however they are scanned."""
    network = make_small("fmc")
    with torch.no_grad():
        network.rows[1:-1] = network.rows[1].clone()
        network.item_bias.zero_()
    graph = export_network(network, scan=scan)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    indexes, scores = rank(session, vocabulary, [["i1", "i2"]], k=60)
    assert len(set(scores[0].tolist())) == 1
    assert vocabulary.decode(indexes[0]) == sorted(vocabulary.item_ids)


def test_another_graph_is_refused(graph, network, vocabulary, histories):
    """A weight that changed on the way is found."""
    document = onnx.load_from_string(graph)
    tensors = {tensor.name: tensor for tensor in document.graph.initializer}
    table = tensors.get("network.items.weight", tensors["rank_table"])  # the latter where both are one
    changed = numpy_helper.to_array(table).copy()
    changed[vocabulary.mask_index, 0] += 5  # [mask]'s, which every network reads
    table.CopyFrom(numpy_helper.from_array(changed, table.name))
    with pytest.raises(ExportError, match="disagree: golden example"):
        check_parity(
            document.SerializeToString(),
            make_golden(network, vocabulary, histories[:3]),
            vocabulary,
            max_length=MAX_LENGTH,
        )


def test_a_graph_that_scores_candidates_otherwise_is_refused(graph, network, vocabulary, histories):
    """Though it ranks as the network does."""
    document = onnx.load_from_string(graph)
    [last] = [node for node in document.graph.node if CANDIDATE_SCORES in node.output]
    assert last.op_type == "Add"
    last.input[1] = last.input[0]  # the products twice, and no bias
    with pytest.raises(ExportError, match="disagree about candidates"):
        check_parity(
            document.SerializeToString(),
            make_golden(network, vocabulary, histories[:3]),
            vocabulary,
            max_length=MAX_LENGTH,
        )


def test_a_graph_that_masks_otherwise_is_refused(graph, network, vocabulary, histories):
    """Though it ranks as the network does where nothing is forbidden."""
    document = onnx.load_from_string(graph)
    [table] = [tensor for tensor in document.graph.initializer if tensor.name == "rank_by_byte"]
    table.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(table)), table.name))
    with pytest.raises(ExportError, match="disagree about masks"):
        check_parity(
            document.SerializeToString(),
            make_golden(network, vocabulary, histories[:3]),
            vocabulary,
            max_length=MAX_LENGTH,
        )


def test_graph_has_the_contracts_signature(graph, session):
    """Inputs and outputs by name, batch and length free, one file without external data, standard operators only."""
    document = onnx.load_from_string(graph)
    assert tuple(value.name for value in session.get_inputs()) == INPUTS
    assert {value.name for value in session.get_overridable_initializers()} == set(OPTIONAL)
    assert [value.name for value in session.get_outputs()] == ["indexes", "scores", CANDIDATE_SCORES]
    assert all(isinstance(size, str) for value in session.get_inputs()[:4] for size in value.shape)
    assert not any(tensor.external_data for tensor in document.graph.initializer)
    assert [(opset.domain, opset.version) for opset in document.opset_import] == [("", OPSET)]


@pytest.fixture
def exported(graph, monkeypatch):
    """The graph is at hand: exporting it takes seconds."""
    monkeypatch.setattr("model.export.graph.export_network", lambda *_, **__: graph)


@pytest.mark.usefixtures("exported")
def test_published_bundle_reads_back(tmp_path, network, vocabulary, histories):
    """`publish_bundle` writes a verified bundle whose golden examples hold for its own graph."""
    counts = np.arange(60, dtype=np.int64)
    folder = publish_bundle(
        tmp_path,
        network,
        name="a-network",
        vocabulary=vocabulary,
        counts=counts,
        trained_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        last_event_at="2026-01-01T00:00:00Z",
        data_fingerprint="f" * 64,
        metrics={"NDCG@10": 0.5},
        histories=[vocabulary.encode(history).tolist() for history in histories[:10]],
        metadata={"i3": {"title": "Third"}},
    )
    bundle = read_bundle(folder)
    assert folder.name == bundle.manifest.version
    assert bundle.manifest.name == "a-network"
    assert bundle.manifest.version.startswith("20260102T030405-")
    assert (bundle.manifest.item_count, bundle.manifest.max_length, bundle.manifest.width) == (60, 12, 16)
    assert bundle.manifest.inputs == INPUTS
    assert bundle.counts.tolist() == counts.tolist()
    assert bundle.metadata
    assert json.loads(bundle.metadata[bundle.vocabulary.index_of("i3") - 1]) == {"title": "Third"}
    assert len(bundle.golden) == 25
    check_parity(bundle.network, bundle.golden, bundle.vocabulary, max_length=12)
