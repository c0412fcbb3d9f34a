"""Loads the model that the settings name, in the thread that may run it."""

from functools import partial
from typing import NamedTuple

from model.contract.bundle import OpenBundle
from service.inference.engine import may_use_gpu
from service.inference.model import LiveModel, load_model
from service.inference.thread import EngineThread
from service.settings import Settings


class Loaded(NamedTuple):
    """A loaded model and the thread that must run it."""

    model: LiveModel
    thread: EngineThread


def load_configured(settings: Settings, bundle: OpenBundle | None = None) -> Loaded:
    """Load the model of an open bundle, or of the bundle that the settings name. Raises StartFailed.

    CUDA graphs belong to the thread that captures them, so on a GPU the engine's thread loads the model. On a CPU the
    calling thread loads it, so that a signal can interrupt it.
    """
    thread = EngineThread()
    load = partial(
        load_model,
        bundle or settings.bundle,
        provider=settings.provider,
        threads=settings.threads,
        max_batch=settings.max_batch,
        cuda_graphs=settings.cuda_graphs,
    )
    try:
        return Loaded(thread.submit(load).result() if may_use_gpu(settings.provider) else load(), thread)
    except BaseException:
        thread.shutdown()  # else each refused bundle would leave a thread behind
        raise
