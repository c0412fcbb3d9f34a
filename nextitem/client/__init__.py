"""A typed client of the service, with retries that do no harm: `pip install 'nextitem[client]'`.

    from nextitem.client import Client

    with Client("http://127.0.0.1:8000") as client:
        receipt = client.record(user_id="u1", item_id="50")
        answer = client.recommend(user_id="u1", k=5, after=receipt)

docs/how-to/python-client.md shows more.
"""

from importlib.util import find_spec

if find_spec("httpx") is None:
    raise ModuleNotFoundError(
        "nextitem.client needs httpx, which is not installed here: pip install 'nextitem[client]'", name="httpx"
    )

from nextitem.client.answers import (
    CatalogueReceipt,
    CatalogueState,
    ExportedEvent,
    FieldErrorDescription,
    FoundItem,
    FoundItems,
    HistoryExport,
    HistoryState,
    ItemDescription,
    ModelName,
    RankedItem,
    Readiness,
    Reason,
    Receipt,
    Recommendation,
    Rejection,
    ScenarioState,
    SimilarItems,
)
from nextitem.client.asynchronous import AsyncClient
from nextitem.client.blocking import Client
from nextitem.client.errors import (
    ClientError,
    EventsRejected,
    Forbidden,
    HistoryBehind,
    Invalid,
    NotFound,
    Problem,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from nextitem.client.ids import decode_id, encode_id
from nextitem.client.model_answers import (
    CandidateDescription,
    DeploymentDescription,
    ModelDescription,
    ModelList,
    RefusedModel,
    VersionDescription,
)
from nextitem.client.requests import (
    Boost,
    EventRequest,
    FilterNode,
    ItemChangeRequest,
    ItemPatchRequest,
    ItemRequest,
    MaxPer,
    Pin,
    RecommendRequest,
    SimilarRequest,
)

__all__ = [
    "AsyncClient",
    "Boost",
    "CandidateDescription",
    "CatalogueReceipt",
    "CatalogueState",
    "Client",
    "ClientError",
    "DeploymentDescription",
    "EventRequest",
    "EventsRejected",
    "ExportedEvent",
    "FieldErrorDescription",
    "FilterNode",
    "Forbidden",
    "FoundItem",
    "FoundItems",
    "HistoryBehind",
    "HistoryExport",
    "HistoryState",
    "Invalid",
    "ItemChangeRequest",
    "ItemDescription",
    "ItemPatchRequest",
    "ItemRequest",
    "MaxPer",
    "ModelDescription",
    "ModelList",
    "ModelName",
    "NotFound",
    "Pin",
    "Problem",
    "RankedItem",
    "Readiness",
    "Reason",
    "Receipt",
    "RecommendRequest",
    "Recommendation",
    "RefusedModel",
    "Rejection",
    "ScenarioState",
    "SimilarItems",
    "SimilarRequest",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "VersionDescription",
    "decode_id",
    "encode_id",
]
