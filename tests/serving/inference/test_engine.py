"""The engine alone: the graph's rules for padding, exclusion and candidates, and what it does not let through."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from model.contract.query import INPUTS, encode_question, stack_questions
from service.errors import EngineUnavailable, StartFailed
from service.inference.engine import CPU, Engine, _make_options, open_engine


def feed(bundle, *histories, exclude=(), candidates=(), k=20):
    """The graph's inputs for some histories that share the rest."""
    questions = [
        encode_question(bundle.vocabulary, history=history, exclude=exclude, candidates=candidates or None, k=k)
        for history in histories
    ]
    return stack_questions(questions, max_length=bundle.manifest.max_length, mask_index=bundle.vocabulary.mask_index)


def test_provider_is_the_sessions_own(engine):
    """The CPU, as the session says."""
    assert engine.provider == CPU


@pytest.mark.parametrize("provider", ["auto", "cpu"])
def test_without_a_gpu_auto_is_the_cpu(bundle, provider):
    """`auto` gives an engine in any case."""
    engine = open_engine(bundle.network, item_count=20, provider=provider, threads=2)
    assert len(engine.rank(feed(bundle, ["i01"])).indexes[0]) == 20


def test_padding_does_not_count(bundle, engine):
    """A short history scores the same alone and beside a longer one, which pads it."""
    alone = engine.rank(feed(bundle, ["i01"]))
    padded = engine.rank(feed(bundle, ["i01"], [f"i{number:02d}" for number in range(1, 8)]))
    assert (alone.indexes[0] == padded.indexes[0]).all()
    assert alone.scores[0] == pytest.approx(padded.scores[0], abs=1e-6)


def test_what_is_left_out_has_no_score(bundle, engine):
    """Excluded items, and all but the candidates, are -inf; nothing else is."""
    ranked = engine.rank(feed(bundle, ["i01"], exclude=["i02"], candidates=["i02", "i03", "i04"]))
    assert np.isfinite(ranked.scores[0]).sum() == 2
    kept = bundle.vocabulary.decode(ranked.indexes[0][:2].tolist())
    assert sorted(kept) == ["i03", "i04"]


@pytest.mark.parametrize(
    "broken", [{"item_ids": np.zeros((1, 3), dtype=np.int64)}, {"k": np.array([500])}, {"extra": np.zeros(1)}]
)
def test_runtime_errors_stop_at_the_boundary(bundle, engine, broken):
    """Whatever ONNX Runtime raises is EngineUnavailable, without the text that may quote what it was given."""
    with pytest.raises(EngineUnavailable, match=r"^ONNX Runtime failed \(\w+\)$"):
        engine.rank(feed(bundle, ["i01"]) | broken)


class Answering:
    """A session that gives one answer to everything."""

    def __init__(self, indexes, scores):
        self._answer = np.array(indexes), np.array(scores, dtype=np.float32)

    def get_providers(self):
        return [CPU]

    def run(self, _names, _feed):
        return self._answer


@pytest.mark.parametrize(
    ("indexes", "scores", "why"),
    [
        ([[1, 2]], [[np.nan, 0.5]], "not finite"),
        ([[1, 2]], [[np.inf, 0.5]], "not finite"),
        ([[1, 21]], [[0.6, 0.5]], "no item"),
        ([[0, 2]], [[0.6, 0.5]], "no item"),
        ([[1, 2, 3]], [[0.6, 0.5]], "another shape"),
        ([[1, 2], [1, 2]], [[0.6, 0.5], [0.6, 0.5]], "another shape"),
    ],
)
def test_nonsense_is_not_passed_on(bundle, indexes, scores, why):
    """Scores that are no numbers and indexes that are no items make the engine unavailable."""
    with pytest.raises(EngineUnavailable, match=why):
        Engine(Answering(indexes, scores), item_count=20).rank(feed(bundle, ["i01"]))


def test_minus_infinity_may_have_any_index(bundle):
    """What is left out may stand at any index, as no one reads it."""
    ranked = Engine(Answering([[1, 21]], [[0.5, -np.inf]]), item_count=20).rank(feed(bundle, ["i01"]))
    assert ranked.scores[0][0] == 0.5


def test_graph_that_is_none(bundle):
    """Bytes that ONNX Runtime cannot load do not start."""
    with pytest.raises(StartFailed, match="cannot be loaded"):
        open_engine(bundle.network[:-100], item_count=20, provider="cpu", threads=1)


def test_inputs_are_those_of_the_manifest(bundle):
    """The service gives exactly what the bundle asks for."""
    assert set(INPUTS) == set(bundle.manifest.inputs)


def test_whole_numbers_are_exact_without_vnni_too():
    """ONNX Runtime takes any key without a word: this one is set, and is one that the installed library knows."""
    key = "session.x64quantprecision"
    assert _make_options(1).get_session_config_entry(key) == "1"
    libraries = Path(onnxruntime.__file__).parent.joinpath("capi").glob("onnxruntime_pybind11_state*")
    assert any(key.encode() in library.read_bytes() for library in libraries)
