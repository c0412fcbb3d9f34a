"""The versions that a worker may start with, opened and tried. Without ONNX Runtime: the supervisor asks, too."""

import logging
from collections.abc import Iterator
from pathlib import Path

from model.contract.bundle import OpenBundle, open_bundle
from model.contract.deployment.document import Deployment, DeploymentError, is_followed, read_deployment
from model.contract.manifest import BundleError
from service.deployment.probe import ProbeBook, Verdict, check_sizes, probe
from service.errors import ModelRefused, StartFailed
from service.inference.refusal import refuse_bundle
from service.settings import Settings

_log = logging.getLogger(__name__)


def read_followed(root: Path) -> Deployment | None:
    """The deployment of a bundle folder; None for a single bundle. Raises StartFailed."""
    if not is_followed(root):
        return None
    try:
        return read_deployment(root)
    except (DeploymentError, BundleError) as error:
        raise StartFailed(f"the bundle cannot be used: {error}") from error


def list_choices(deployment: Deployment) -> list[str]:
    """Champion, else previous, else the history, newest first; each version once."""
    past = [entry.champion for entry in reversed(deployment.history)]
    return list(dict.fromkeys(name for name in (deployment.champion, deployment.previous, *past) if name))


def open_version(root: Path, version: str, *, pin: str | None) -> OpenBundle:
    """Open a version of a bundle folder, which must be the one that was pinned. Raises ModelRefused."""
    try:
        bundle = open_bundle(root / version)
    except BundleError as error:
        raise refuse_bundle(error) from error
    try:
        _check_pin(bundle, version, pin)
        check_sizes(bundle)
    except ModelRefused:
        bundle.close()
        raise
    return bundle


def _check_pin(bundle: OpenBundle, version: str, pin: str | None) -> None:
    if pin is not None and bundle.digest != pin:
        raise ModelRefused("digest", f"{version} is not the bundle that was deployed: its manifest has changed")


def open_current(settings: Settings) -> OpenBundle:
    """Open the bundle that should serve: the champion's, or the one that the settings name. Raises StartFailed."""
    deployment = read_followed(settings.bundle)
    if deployment is not None:
        return open_version(settings.bundle, deployment.champion, pin=deployment.digests.get(deployment.champion))
    try:
        return open_bundle(settings.bundle)
    except BundleError as error:
        raise refuse_bundle(error) from error


def try_bundle(settings: Settings, bundle: OpenBundle, book: ProbeBook) -> Verdict:
    """What a probe of this bundle finds, or has found."""
    with book.take_turn():
        verdict = book.find(bundle, since_s=0.0)
        if verdict is None:
            verdict = probe(settings, bundle)
            book.note(bundle, verdict)
        return verdict


def open_choices(settings: Settings, deployment: Deployment) -> Iterator[tuple[str, OpenBundle | ModelRefused]]:
    """Yield each version that a worker may start with, opened, or why it cannot be. Whoever takes one closes it."""
    for version in list_choices(deployment):
        try:
            yield version, open_version(settings.bundle, version, pin=deployment.digests.get(version))
        except ModelRefused as refusal:
            yield version, refusal


def open_first(settings: Settings, book: ProbeBook) -> tuple[OpenBundle, Verdict]:
    """Open the first version that a probe finds good, or the one bundle of the settings. Raises StartFailed."""
    deployment = read_followed(settings.bundle)
    if deployment is None:
        bundle = open_current(settings)
        return bundle, _require(settings, bundle, book)
    first: ModelRefused | None = None
    for version, found in open_choices(settings, deployment):
        try:
            if isinstance(found, ModelRefused):
                raise found
            return found, _require(settings, found, book)
        except ModelRefused as refusal:
            log_refusal(version, refusal)
            first = first or refusal
    raise first or StartFailed("the deployment names no version")


def _require(settings: Settings, bundle: OpenBundle, book: ProbeBook) -> Verdict:
    """The verdict on a bundle that can be used. One that cannot is closed, and raises ModelRefused."""
    try:
        verdict = try_bundle(settings, bundle, book)
        verdict.require()
    except ModelRefused:
        bundle.close()
        raise
    return verdict


def log_refusal(version: str, refusal: ModelRefused) -> None:
    """Say which version cannot be used and why."""
    _log.error("Version %s cannot be used", version, extra={"fields": {"why": str(refusal), "code": refusal.code}})
