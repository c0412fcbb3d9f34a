"""The fields of POST /recommend that hold business rules: boosts, diversity, max_per, pins, and scenario for all."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, model_validator

from service.api.fields import MAX_FIELD_NAME, MAX_K, Id, read_context
from service.api.filter_field import RequiredFilter
from service.api.validation import refuse

MAX_PINS = 10
MAX_BOOSTS = 4
"""Each is a row of the model's run."""
MAX_ADD = 10
MAX_SCENARIO_NAME = 64
SCENARIO_PATTERN = "^[0-9A-Za-z][0-9A-Za-z._-]*$"
MAX_DIVERSE = 50
"""Maximum `k` with diversity: its pool has ten items for each, and no more than 500."""


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_members(cls, document: object) -> object:
        """One error, however many members are unknown: pydantic would make one for each."""
        if isinstance(document, dict) and len(document) > len(cls.model_fields):
            raise refuse("extra_forbidden", "holds a field that is unknown")
        return document


class Pin(_Rule):
    """An item and the rank at which it is to stand."""

    item_id: Id
    rank: int = Field(ge=1, le=MAX_K, description="from 1 to `k`")


class MaxPer(_Rule):
    """At most `count` items of each value of a metadata field."""

    field: Annotated[str, StringConstraints(min_length=1, max_length=MAX_FIELD_NAME)]
    count: int = Field(ge=1, le=MAX_K)


class Boost(_Rule):
    """What is added to the scores of the items whose metadata matches, for their order. The first match counts."""

    filter: RequiredFilter = Field(description="as the field `filter` of the request")
    add: float = Field(ge=-MAX_ADD, le=MAX_ADD, allow_inf_nan=False)


def _check_pins(pins: list[Pin], info: ValidationInfo) -> list[Pin]:
    _check_alone(pins, info)
    if any(pin.rank > info.data.get("k", MAX_K) for pin in pins):
        raise refuse("range", "ranks must be at most k")
    if len({pin.rank for pin in pins}) < len(pins) or len({pin.item_id for pin in pins}) < len(pins):
        raise refuse("repeated", "no two may have the same item or the same rank")
    return pins


def _check_diversity(diversity: float, info: ValidationInfo) -> float:
    _check_alone(diversity, info)
    if diversity and info.data.get("k", 1) > MAX_DIVERSE:
        raise refuse("diversity_k", f"needs a k of at most {MAX_DIVERSE}")
    return diversity


def _check_max_per(max_per: MaxPer, info: ValidationInfo) -> MaxPer:
    _check_alone(max_per, info)
    return max_per


def _check_boosts(boosts: list[Boost], info: ValidationInfo) -> list[Boost]:
    _check_alone(boosts, info)
    return boosts


def _check_scenario(name: str, info: ValidationInfo) -> str:
    _check_alone(name, info)
    return name


def _check_alone(value: object, info: ValidationInfo) -> None:
    """Rules may take a millisecond or several runs: too much for 256 requests at once."""
    if value and read_context(info).get("batch"):
        raise refuse("rules_batch", "is for POST /recommend alone, not for requests of a batch")


Pins = Annotated[list[Pin], Field(max_length=MAX_PINS), AfterValidator(_check_pins)]
Boosts = Annotated[list[Boost], Field(max_length=MAX_BOOSTS), AfterValidator(_check_boosts)]
Diversity = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), AfterValidator(_check_diversity)]
Cap = Annotated[MaxPer, AfterValidator(_check_max_per)]
ScenarioName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_SCENARIO_NAME, pattern=SCENARIO_PATTERN),
    AfterValidator(_check_scenario),
]
