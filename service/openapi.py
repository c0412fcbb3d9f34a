"""OpenAPI of what the routes read themselves: FastAPI sees the answers, the requests and the keys are added here."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from service.answers import ProblemDescription
from service.errors import Forbidden, Unauthorized
from service.gate import SCHEME
from service.routes.exchange import describe_problems
from service.schemas import EventRequest, EventsRequest, RecommendBatchRequest, RecommendRequest

_REFERENCE = "#/components/schemas/{model}"


def install_openapi(app: FastAPI) -> None:
    """Make `app` describe itself fully, the first time that it is asked."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's documented way to extend its OpenAPI


def _describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    bodies = (RecommendRequest, RecommendBatchRequest, EventRequest, EventsRequest)
    requests = [(schema, "validation") for schema in bodies]
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
