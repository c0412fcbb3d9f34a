"""Answers about models: which one answers, and which ones there are."""

from dataclasses import dataclass
from typing import Literal

VariantName = Literal["champion", "candidate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDescription:
    """The version on trial; `share` is None unless the mode is canary. `in_use`: the worker answers by it."""

    version: str
    mode: Literal["shadow", "canary"]
    share: float | None
    in_use: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedModel:
    """The version that should answer and cannot be used: why, as a code, and since when."""

    version: str
    code: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """The champion of the worker that answers. `generation` is that of the deployment which it serves.

    `rankers`: what a request may name as its `ranker`, words and loaded versions.
    `filter_fields` are what a filter may name, and what their values are.
    """

    name: str
    version: str
    digest: str
    trained_at: str
    last_event_at: str | None
    provider: str
    item_count: int
    max_length: int
    metrics: dict[str, float]
    generation: int
    follows: bool
    variant: VariantName
    candidate: CandidateDescription | None
    refused: RefusedModel | None
    rankers: tuple[str, ...]
    filter_fields: dict[str, Literal["number", "string"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDescription:
    """One version of the bundle folder. Without a readable manifest, all but its name and role are None."""

    version: str
    role: Literal["champion", "candidate", "previous"] | None
    trained_at: str | None
    item_count: int | None
    metrics: dict[str, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentDescription:
    """Who answers. `judged` tells whether the judge may promote and return the candidate."""

    generation: int
    champion: str
    candidate: str | None
    mode: Literal["off", "shadow", "canary"]
    share: float
    previous: str | None
    judged: bool
    at: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """The newest versions, oldest training first, and the deployment.

    `rankers`: what a request may name as its `ranker`; `refused`: versions for comparison that cannot be loaded.
    """

    versions: tuple[VersionDescription, ...]
    deployment: DeploymentDescription
    rankers: tuple[str, ...]
    refused: tuple[RefusedModel, ...]
