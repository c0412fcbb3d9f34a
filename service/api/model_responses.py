"""Answers about models: which one answers, and which ones there are."""

from typing import (
    Literal,  # pydantic reads typing's own from Python 3.12 on only
)

from typing_extensions import TypedDict

from model.contract.deployment.document import VariantName


class CandidateDescription(TypedDict):
    """The version on trial. `share` is the share of users that it answers, null unless the mode is canary.

    `in_use` says whether this worker answers them by it: it is loaded, and neither failing nor slow.
    """

    version: str
    mode: Literal["shadow", "canary"]
    share: float | None
    in_use: bool


class RefusedModel(TypedDict):
    """The version that should answer and cannot be used: why, as a code, and since when."""

    version: str
    code: str
    since: str


class ModelDescription(TypedDict):
    """The answer of GET /model. `provider` is the execution provider that ONNX Runtime uses.

    `generation` is that of the deployment which this worker serves; `follows` says whether it follows its changes.
    `rankers`: what this worker can be asked for by `ranker`, words and versions.
    `filter_fields`: what a `filter` may name, and what its values are.
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
    rankers: list[str]
    filter_fields: dict[str, Literal["number", "string"]]


class VersionDescription(TypedDict):
    """One version of the bundle folder. Without a readable manifest, all but its name and role are null."""

    version: str
    role: Literal["champion", "candidate", "previous"] | None
    trained_at: str | None
    item_count: int | None
    metrics: dict[str, float] | None


class DeploymentDescription(TypedDict):
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


class ModelList(TypedDict):
    """The answer of GET /models: the newest versions, oldest training first, and the deployment.

    Of the worker that answers: `rankers`, as GET /model has them, and `refused`, versions of --also-serve that it
    cannot load.
    """

    versions: list[VersionDescription]
    deployment: DeploymentDescription
    rankers: list[str]
    refused: list[RefusedModel]
