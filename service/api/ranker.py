"""The field `ranker` of POST /recommend: what is to rank, or which version is to answer, for comparisons."""

import re
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo, WithJsonSchema

from service.api.fields import MAX_VERSION_NAME, NAME_PATTERN, read_context
from service.api.validation import refuse
from service.errors import FieldError

RANKERS = ("auto", "model", "neighbours", "rules", "popular")
"""The words, `auto` first. Anything else is a version: one that is called by such a word cannot be asked for."""

NOT_LOADED = FieldError("/ranker", "unknown_ranker", "must be a ranker or a loaded version: GET /models lists them")
NOT_PUBLISHED = {
    ranker: FieldError(
        "/ranker", "unknown_ranker", f"the bundle has no {ranker}: publish it with --{ranker} to have them"
    )
    for ranker in ("neighbours", "rules")
}

_NAME = re.compile(NAME_PATTERN[1:-1])


def _check_ranker(value: str, info: ValidationInfo) -> str:
    if len(value) > MAX_VERSION_NAME or not _NAME.fullmatch(value):
        raise refuse(NOT_LOADED.code, NOT_LOADED.detail)
    if value != "auto" and read_context(info).get("batch"):  # neighbours for all of it would take a quarter of a second
        raise refuse("ranker_batch", "is for POST /recommend alone: requests of a batch have auto")
    if names_version(value) and info.data.get("variant") is not None:
        raise refuse("ranker_variant", "names a version, which says who answers as variant does: give one of them")
    return value


Ranker = Annotated[
    str,
    AfterValidator(_check_ranker),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": [*RANKERS]},
                {"type": "string", "minLength": 1, "maxLength": MAX_VERSION_NAME, "pattern": NAME_PATTERN},
            ]
        }
    ),
]


def names_version(ranker: str) -> bool:
    """Whether a ranker is a version, and not one of the words."""
    return ranker not in RANKERS
