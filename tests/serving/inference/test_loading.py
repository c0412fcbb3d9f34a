"""Which thread loads a model: on a GPU the one that runs it, since what it captures belongs to a thread."""

import threading
from pathlib import Path

import pytest

from service.errors import StartFailed
from service.inference import loading, model
from service.inference.engine import open_engine
from service.inference.model import load_model
from service.settings import Settings

BUNDLE = Path(__file__).parents[1] / "bundle"


@pytest.fixture
def loading_threads(monkeypatch):
    """The threads that models are loaded in, as they come."""
    threads = []

    def load(*given, **named):
        threads.append(threading.get_ident())
        return load_model(*given, **named)

    monkeypatch.setattr(loading, "load_model", load)
    return threads


def test_the_thread_that_runs_a_gpu_loads_the_model(monkeypatch, loading_threads):
    """With the package for GPUs the engine's thread loads; the model comes from there."""
    monkeypatch.setattr(loading, "may_use_gpu", lambda provider: provider == "auto")
    model, thread = loading.load_configured(Settings(bundle=BUNDLE))
    assert loading_threads == [thread.submit(threading.get_ident).result()]
    assert model.manifest.item_count == 20
    thread.shutdown()


def test_elsewhere_the_caller_loads_it(loading_threads):
    """On a CPU the thread that a signal can end loads, as any may."""
    _, thread = loading.load_configured(Settings(bundle=BUNDLE, provider="cpu"))
    assert loading_threads == [threading.get_ident()]
    thread.shutdown()


def test_a_bundle_that_is_none_is_refused_from_either_thread(monkeypatch, tmp_path):
    """What is wrong comes out as it would without a thread."""
    for gpu in (False, True):
        monkeypatch.setattr(loading, "may_use_gpu", lambda _, gpu=gpu: gpu)
        with pytest.raises(StartFailed, match="the bundle cannot be used"):
            loading.load_configured(Settings(bundle=tmp_path))


def test_shapes_are_asked_for_unless_turned_off(monkeypatch):
    """`--cuda-graphs off` leaves no shape to capture; else there are some, up to the largest batch."""
    seen = []

    def open_and_note(*given, **named):
        seen.append(named["buckets"])
        return open_engine(*given, **named)

    monkeypatch.setattr(model, "open_engine", open_and_note)
    for value in ("auto", "off"):
        loading.load_configured(Settings(bundle=BUNDLE, cuda_graphs=value, max_batch=9)).thread.shutdown()
    asked, none = seen
    assert [bucket.rows for bucket in asked] == [1, 4, 9]
    assert none == ()
