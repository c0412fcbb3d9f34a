"""Why a bundle that cannot be read is refused, as a code.

Without ONNX Runtime, which the supervisor does not import.
"""

from model.contract.manifest import BundleCorrupt, BundleError, BundleFormat, BundleMissing
from service.errors import ModelRefused

_CODES = {BundleMissing: "missing", BundleCorrupt: "corrupt", BundleFormat: "format"}


def refuse_bundle(error: BundleError) -> ModelRefused:
    """The refusal of a bundle that cannot be read."""
    return ModelRefused(_CODES.get(type(error), "unreadable"), f"the bundle cannot be used: {error}")
