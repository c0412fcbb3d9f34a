"""What a version must hold before it may answer or be tried: files that are there, and most of what users did."""

from pathlib import Path

from model.contract.bundle import open_bundle
from model.contract.deployment.document import DeploymentRefused
from model.contract.manifest import BundleError

KNOWN_LEAST = 0.5
"""Share of the champion's counted interactions whose items a version must know."""


def measure_known(root: Path, champion: str, version: str) -> float | None:
    """Share of the champion's counted interactions whose items a version knows, 0 to 1.

    None where the champion's bundle cannot be read or counts nothing: there is nothing to compare with. Raises
    BundleError if the version's bundle cannot be read.
    """
    with open_bundle(root / version) as bundle:
        vocabulary, _ = bundle.read_catalogue()
    try:
        with open_bundle(root / champion) as bundle:
            before, counts = bundle.read_catalogue()
    except BundleError:
        return None
    total = int(counts.sum())
    return float(counts[vocabulary.encode(before.item_ids) > 0].sum() / total) if total else None


def require_known(root: Path, champion: str, version: str, *, force: bool) -> float | None:
    """The share that `measure_known` finds. Raises DeploymentRefused below KNOWN_LEAST unless forced."""
    known = measure_known(root, champion, version)
    if known is not None and known < KNOWN_LEAST and not force:
        raise DeploymentRefused(
            f"this version knows the items of only {known:.0%} of the champion's interactions, and at least "
            f"{KNOWN_LEAST:.0%} are required: was it trained on another catalogue? --force overrides this"
        )
    return known
