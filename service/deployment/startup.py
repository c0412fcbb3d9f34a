"""What a worker serves when it starts: the champion, or else the newest earlier version that can be used.

And the versions beside it, where loading them later would hold up answers.
"""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace

from model.contract.bundle import OpenBundle
from model.contract.deployment.document import Deployment
from service.deployment.beside import is_version, list_answering, require_name
from service.deployment.choices import (
    list_choices,
    log_refusal,
    open_choices,
    open_version,
    read_followed,
    try_bundle,
)
from service.deployment.probe import ProbeBook
from service.deployment.replacement import holds_up_answers
from service.errors import ModelRefused, StartFailed
from service.inference.loading import Loaded, load_configured
from service.inference.model import LiveModel
from service.settings import Settings

_log = logging.getLogger(__name__)


def load_first(settings: Settings, book: ProbeBook, handed_over: OpenBundle | None = None) -> Loaded:
    """Load what the deployment names: champion, else previous, else its history, newest first, else `handed_over`.

    Where there is a choice, each is tried in a process of its own first. A worker that follows nothing takes what was
    handed over. Raises StartFailed if none can be used.
    """
    if handed_over is not None and not settings.follow_s:
        return load_configured(settings, handed_over)
    try:
        deployment = read_followed(settings.bundle)
    except StartFailed as error:
        if handed_over is None:
            raise
        _log.error("Using what the service started with", extra={"fields": {"why": str(error)}})
        return load_configured(settings, handed_over)
    if deployment is None:
        return load_configured(settings, handed_over)
    return _load_choice(settings, book, deployment, handed_over)


def _load_choice(settings: Settings, book: ProbeBook, deployment: Deployment, handed_over: OpenBundle | None) -> Loaded:
    first: ModelRefused | None = None
    tries = len(list_choices(deployment)) > 1
    for version, found in open_choices(settings, deployment):
        try:
            loaded = _load(settings, book, found, tries=tries)
        except ModelRefused as refusal:
            log_refusal(version, refusal)
            first = first or refusal
            continue
        if first is not None:
            _log.warning("Using version %s instead of %s", version, deployment.champion)
        return loaded
    if handed_over is None:
        raise first or StartFailed("the deployment names no version")
    _log.warning("Using what the service started with instead of %s", deployment.champion)
    return load_configured(settings, handed_over)


def _load(settings: Settings, book: ProbeBook, found: OpenBundle | ModelRefused, *, tries: bool) -> Loaded:
    if isinstance(found, ModelRefused):
        raise found
    with found:
        if tries:
            try_bundle(settings, found, book).require()
        return load_configured(settings, found)


def load_candidate(settings: Settings, book: ProbeBook, champion: LiveModel) -> Loaded | None:
    """Load the candidate in canary beside this champion, where a load in a worker that answers would hold it up.

    None for all others, which are loaded once the worker serves. It is loaded only if the instance's workers have tried
    it and found it good: a start waits for no trial. Whatever is wrong with it, the worker starts without it.
    """
    try:
        deployment = read_followed(settings.bundle)
    except StartFailed:
        return None  # the watcher says so
    version = None if deployment is None or deployment.mode != "canary" else deployment.candidate
    if deployment is None or version is None or not is_version(champion, deployment.champion, deployment):
        return None
    return _load_beside(settings, book, version, deployment)


def load_compared(settings: Settings, book: ProbeBook, loaded: Sequence[LiveModel]) -> list[Loaded]:
    """Load the versions to be served for comparison that `loaded` has none of, by the rule of `load_candidate`."""
    if not settings.also_serve:
        return []
    try:
        deployment = read_followed(settings.bundle)
    except StartFailed:
        return []  # the watcher says so
    if deployment is None:
        _log.error("--also-serve is left out: the bundle is a single one, and no folder of versions")
        return []
    missing = [
        version
        for version in settings.also_serve
        if version not in list_answering(deployment)
        and not any(is_version(model, version, deployment) for model in loaded)
    ]
    found = [_load_beside(settings, book, version, deployment, named=True) for version in missing]
    return [one for one in found if one is not None]


def _load_beside(
    settings: Settings, book: ProbeBook, version: str, deployment: Deployment, *, named: bool = False
) -> Loaded | None:
    """Load a version that was tried. With `named` requests name it, and its folder must be called as it is."""
    try:
        with book.take_turn(), open_version(settings.bundle, version, pin=deployment.digests.get(version)) as bundle:
            if named:
                require_name(bundle, version)
            return _load_tried(settings, book, bundle)
    except ModelRefused as refusal:
        if not named:  # else the watcher says so
            log_refusal(version, refusal)
        return None


def _load_tried(settings: Settings, book: ProbeBook, bundle: OpenBundle) -> Loaded | None:
    """Load a bundle that was found good and holds up answers. Raises ModelRefused.

    While it loads, the book has it crashed. So where it ends this worker, the next one starts without it.
    """
    good = book.find(bundle, since_s=math.inf)
    if good is None or not holds_up_answers(good):
        return None
    ended = replace(good, code="crashed", sentence="a worker that loaded it ended", at_s=time.monotonic())
    book.note(bundle, ended)
    try:
        loaded = load_configured(settings, bundle)
    except StartFailed as error:
        refusal = error if isinstance(error, ModelRefused) else ModelRefused("engine", str(error))
        book.note(bundle, replace(ended, code=refusal.code, sentence=str(refusal)))
        raise refusal from error
    book.note(bundle, good)
    return loaded
