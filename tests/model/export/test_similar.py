"""similar.onnx: whatever the scan, the items that numpy finds by the cosines of rows; and refused where it does not."""

from datetime import UTC, datetime

import numpy as np
import onnx
import onnxruntime
import pytest

from model.contract import similar as contract
from model.contract.allowed import BLOCK, Allowed
from model.contract.bundle import read_bundle
from model.contract.query import INPUTS, OPTIONAL, Question, skip_ranking, stack_questions
from model.contract.vocabulary import Vocabulary
from model.export.graph import OPSET, publish_bundle
from model.export.parity import ExportError, make_golden
from model.export.similar import export_similar, make_similar_files, make_similar_golden

SCANS = ["plain", "float32", "int8"]
V, D = 300, 16


@pytest.fixture(scope="module")
def rows():
    """Rows (V + 2, D) of many lengths; one is 0, two are one, and one points away from all that it was drawn from."""
    draw = np.random.default_rng(7)
    rows = (draw.normal(size=(V + 2, D)) + 0.5) * np.exp(draw.normal(size=(V + 2, 1)))
    rows[9] = 0
    rows[200] = 3 * rows[100]
    rows[50] = -rows[51]
    return rows.astype(np.float32)


@pytest.fixture(scope="module", params=SCANS)
def session(request, rows):
    """ONNX Runtime on the graph, by each scan."""
    return onnxruntime.InferenceSession(
        export_similar(rows, request.param, opset=OPSET), providers=["CPUExecutionProvider"]
    )


def normalise(rows):
    """Rows of length 1 in float64, 0 where there is no length; and of what is no item."""
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros(rows.shape), where=lengths > 0)
    unit[[0, -1]] = 0
    return unit


def draw_question(draw):
    """One to ten items, some twice; exclusions; candidates now and then; masks of some density as often as not."""
    asked = draw.integers(1, V + 1, size=draw.integers(1, 11)).astype(np.int32)
    excluded = draw.integers(1, V + 1, size=draw.choice([0, 3, 100])).astype(np.int32)
    candidates = draw.integers(1, V + 1, size=draw.integers(1, 40)).astype(np.int32) if draw.random() < 0.3 else None
    allowed = Allowed(draw.random(V + 2) < draw.random()) if draw.random() < 0.5 else None
    return Question(asked, np.concatenate([asked, excluded]), candidates, int(draw.integers(1, 60)), allowed=allowed)


def test_a_thousand_questions_as_numpy_sorts_them(session, rows):
    """The mean of cosines in float64, sorted; batches of different lengths; equal scores may change places."""
    unit, draw = normalise(rows), np.random.default_rng(11)
    for _ in range(125):
        questions = [draw_question(draw) for _ in range(8)]
        feed = stack_questions(questions, max_length=contract.MAX_LENGTH, mask_index=V + 1)
        indexes, scores = session.run(["indexes", "scores"], feed)
        for question, got, got_scores in zip(questions, indexes, scores, strict=True):
            true = unit @ unit[question.history].mean(axis=0)
            allowed = np.setdiff1d(np.arange(1, V + 1), question.exclude)
            if question.candidates is not None:
                allowed = np.intersect1d(allowed, question.candidates)
            if question.allowed is not None:
                allowed = allowed[question.allowed.mask[allowed]]
            expected = allowed[np.argsort(-true[allowed], kind="stable")][: question.k]
            count = len(expected)
            found, found_scores = got[: question.k][:count], got_scores[: question.k][:count]
            assert np.isneginf(got_scores[count : question.k]).all()
            np.testing.assert_allclose(found_scores, true[expected], rtol=0, atol=1e-5)
            np.testing.assert_allclose(true[found], true[expected], rtol=0, atol=1e-5)
            assert len(set(found.tolist())) == count
            assert set(found.tolist()) <= set(allowed.tolist())


def test_rows_of_candidates_have_length_one(session, rows):
    """In the order asked, 0 where the table has no row to speak of; no item is ranked for it."""
    asked = np.array([9, 100, 200, 50, 51, V], dtype=np.int32)
    none = asked[:0]
    feed = stack_questions([Question(none, none, asked, 1)], max_length=contract.MAX_LENGTH, mask_index=V + 1)
    (found,) = session.run([contract.CANDIDATE_ROWS], skip_ranking(feed))
    np.testing.assert_allclose(found[0], normalise(rows)[asked], rtol=0, atol=1e-6)
    assert not found[0, 0].any()


def test_signature_is_that_of_every_graph(rows):
    """So that whatever asks the network's graph can ask this one; the rows stand in the file once."""
    graph = onnx.load_from_string(export_similar(rows, "plain", opset=OPSET)).graph
    assert {value.name for value in graph.input} == {*INPUTS, *OPTIONAL}
    assert [value.name for value in graph.output] == ["indexes", "scores", "candidate_scores", "candidate_rows"]
    padded = [-(-(V + 2) // BLOCK) * BLOCK, D]
    assert sum(tensor.dims == padded for tensor in graph.initializer) == 1


def test_examples_are_of_every_kind(rows):
    """One item, several that are excluded, and candidates; an empty history is one of a drawn item."""
    vocabulary = Vocabulary.from_items(f"i{number:03}" for number in range(V))
    examples = make_similar_golden(rows, vocabulary, [[], list(vocabulary.item_ids[5:30])])
    assert len(examples) == 7
    assert [len(example.items) for example in examples] == [1, 1, 1, 1, 1, 10, 10]
    assert examples[5].items == examples[5].exclude == vocabulary.item_ids[20:30]
    assert len(examples[6].candidates) == 20
    assert all(example.expected_items for example in examples)


def test_a_graph_that_answers_otherwise_is_refused(rows, monkeypatch):
    """The answers of rows that are not the graph's."""
    vocabulary = Vocabulary.from_items(f"i{number:03}" for number in range(V))
    other = export_similar(rows[::-1].copy(), "plain", opset=OPSET)
    monkeypatch.setattr("model.export.similar.export_similar", lambda *_, **__: other)
    with pytest.raises(ExportError, match="disagree"):
        make_similar_files(rows, vocabulary, [["i007"]], scan="plain", opset=OPSET, kept=9)


def test_published_with_the_network(tmp_path, network, vocabulary, monkeypatch):
    """The rows are the network's, the examples hold; and a bundle without has neither file."""
    exported = b"takes seconds", make_golden(network, vocabulary, [])
    monkeypatch.setattr("model.export.graph._export_checked", lambda *_, **__: exported)

    def publish(**options):
        return read_bundle(
            publish_bundle(
                tmp_path,
                network,
                name="a-network",
                vocabulary=vocabulary,
                counts=np.ones(60, dtype=np.int64),
                trained_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
                last_event_at=None,
                data_fingerprint="f" * 64,
                metrics={},
                histories=[[1, 2, 3], [60]],
                scan="plain",
                **options,
            )
        )

    plain, bundle = publish(), publish(similar=True)
    assert plain.similar is None
    assert set(bundle.manifest.files) - set(plain.manifest.files) == {contract.SIMILAR, contract.SIMILAR_GOLDEN}
    assert bundle.network == plain.network
    assert bundle.similar is not None
    assert len(bundle.similar.golden) == 7
    session = onnxruntime.InferenceSession(bundle.similar.network, providers=["CPUExecutionProvider"])
    everything = np.arange(1, 61, dtype=np.int32)
    question = Question(everything[:0], everything[:0], everything, 1)
    feed = stack_questions([question], max_length=contract.MAX_LENGTH, mask_index=61)
    (found,) = session.run([contract.CANDIDATE_ROWS], skip_ranking(feed))
    np.testing.assert_allclose(found[0], normalise(network.rows.detach().numpy())[1:-1], rtol=0, atol=1e-6)
