"""What fields of several requests have in common: ids and limits."""

from typing import Annotated, Any

from pydantic import StringConstraints, ValidationInfo

from model.contract.id_rule import ID_PATTERN, MAX_ID_LENGTH

MAX_K = 500
MAX_FIELD_NAME = 100
"""Maximum characters of the name of a metadata field."""
MAX_VERSION_NAME = 64
NAME_PATTERN = "^[0-9A-Za-z][0-9A-Za-z._-]*$"
"""What may name a version, as model.contract.manifest has it."""

# The length limits repeat the pattern's, so that an id that is too long gets that error and not "pattern".
Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_LENGTH, pattern=f"^{ID_PATTERN}$")]
Version = Annotated[str, StringConstraints(min_length=1, max_length=MAX_VERSION_NAME, pattern=NAME_PATTERN)]


def read_context(info: ValidationInfo) -> dict[str, Any]:
    """What a validator is told besides the document."""
    context: dict[str, Any] = info.context or {}
    return context
