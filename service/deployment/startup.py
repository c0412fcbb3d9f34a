"""What a worker serves when it starts: the champion, or else the newest earlier version that can be used."""

import logging

from model.contract.bundle import OpenBundle
from model.contract.deployment.document import Deployment
from service.deployment.choices import list_choices, log_refusal, open_choices, read_followed, try_bundle
from service.deployment.probe import ProbeBook
from service.errors import ModelRefused, StartFailed
from service.inference.loading import Loaded, load_configured
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
