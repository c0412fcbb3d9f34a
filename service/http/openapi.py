"""Completes the OpenAPI document: FastAPI describes the answers; this adds requests, examples and security."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from service.api.catalogue_requests import ItemChangeRequest, ItemPatchRequest, ItemRequest, ItemsRequest
from service.api.deployment_requests import CandidateRequest, DeploymentRequest, ShareRequest, UseRequest
from service.api.event_requests import EventRequest, EventsRequest
from service.api.requests import RecommendBatchRequest, RecommendRequest
from service.api.responses import ProblemDescription
from service.api.similar import SimilarRequest
from service.auth.guard import SCHEME
from service.errors import Forbidden, Unauthorized
from service.http.parameters import describe_problems
from service.settings import DEFAULT_TYPE

_REFERENCE = "#/components/schemas/{model}"
_USER = "example-user"
_BODIES = (
    RecommendRequest,
    RecommendBatchRequest,
    SimilarRequest,
    EventRequest,
    EventsRequest,
    DeploymentRequest,
    UseRequest,
    CandidateRequest,
    ShareRequest,
    ItemRequest,
    ItemPatchRequest,
    ItemChangeRequest,
    ItemsRequest,
)


def install_openapi(app: FastAPI, *, choose_item: Callable[[], str]) -> None:
    """Make `app` generate the complete document on first use, and again when another item is chosen.

    `choose_item` returns an item of the model in use for the examples.
    """
    shown: list[str] = []

    def describe() -> dict[str, Any]:
        item_id = choose_item()
        if app.openapi_schema is None or shown != [item_id]:
            app.openapi_schema = _describe(app)
            _add_examples(app.openapi_schema, item_id)
            shown[:] = [item_id]
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's documented way to extend its OpenAPI


def _describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    requests = [(schema, "validation") for schema in _BODIES]
    _, definitions = models_json_schema(requests, ref_template=_REFERENCE)  # type: ignore[arg-type]
    problem = TypeAdapter(ProblemDescription).json_schema(ref_template=_REFERENCE)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas |= definitions["$defs"] | problem.pop("$defs") | {ProblemDescription.__name__: problem}
    document["components"]["securitySchemes"] = {
        SCHEME: {"type": "http", "scheme": "bearer", "bearerFormat": "nk_<id>_<secret>"}
    }
    refusals = {str(status): refusal for status, refusal in describe_problems(Unauthorized, Forbidden).items()}
    for path in document["paths"].values():
        for operation in path.values():
            if operation["security"]:
                operation["responses"] |= refusals
    return document


def _add_examples(document: dict[str, Any], item_id: str) -> None:
    """Add a working example request to each route, which /docs sends unchanged."""
    session = {"items": [item_id], "k": 5}
    stored = {"user_id": _USER, "k": 5}
    event = {"user_id": _USER, "item_id": item_id, "type": DEFAULT_TYPE}
    bodies = {
        "/recommend": {
            "session": {"summary": "By the items of a session", "value": session},
            "user": {"summary": "By a user's stored history", "value": stored},
        },
        "/recommend/batch": {"both": {"summary": "Two at once", "value": {"requests": [session, stored]}}},
        "/similar": {
            "next": {"summary": "By what the model ranks next", "value": {"item_ids": [item_id], "k": 5, "by": "next"}}
        },
        "/events": {
            "events": {"summary": "What happened, in one request", "value": {"events": [event]}},
            "event": {"summary": "A single event", "value": event},
        },
    }
    for path, examples in bodies.items():
        document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"] = examples
    parameters = {"user_id": _USER, "item_id": item_id, "query": item_id}
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in parameters:
                    parameter["example"] = parameters[parameter["name"]]
