"""The Python client's types are those of the service's OpenAPI, field by field, so that they cannot drift apart.

What a test names here is a line to add: a field to nextitem/client/requests.py or answers.py, a route to calls.py and
both clients.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

import pytest
from typing_extensions import is_typeddict  # of its own kind of TypedDict, too

from nextitem.client import answers, calls, errors, model_answers, recording, requests
from nextitem.client.answers import Receipt
from nextitem.client.settings import Limits
from service.api import operator_responses
from service.errors import Problem
from service.http.body import EVENTS_MAX_BYTES

LIMITS = Limits()
CALLS: list[Any] = [
    calls.recommend({"user_id": "u"}, after=None, limits=LIMITS),
    calls.recommend_batch([], after=None, limits=LIMITS),
    calls.find_similar({"item_ids": ["i"]}, limits=LIMITS),
    next(recording.record_many([{"user_id": "u", "item_id": "i"}], strict=True, limits=LIMITS)),
    calls.put_item("i", {}, limits=LIMITS),
    calls.patch_item("i", {}, limits=LIMITS),
    calls.delete_item("i", limits=LIMITS),
    calls.change_items([], limits=LIMITS),
    calls.get_history("u", limits=LIMITS),
    calls.erase("u", limits=LIMITS),
    calls.get_item("i", limits=LIMITS),
    calls.find_items("q", limit=1, limits=LIMITS),
    calls.get_model(limits=LIMITS),
    calls.get_models(limits=LIMITS),
    calls.get_readiness(limits=LIMITS),
]
NOT_FOR_APPLICATIONS = {
    ("GET", "/health/live"): "whoever restarts the service asks",
    ("GET", "/metrics"): "Prometheus asks",
    ("GET", "/status"): "the console asks, for operators",
    ("GET", "/models/trial"): "the console asks, for operators",
    ("GET", "/users"): "the console asks, for operators",
    **{
        ("POST", f"/models/{action}"): "operators have `nextitem-serve models`"
        for action in ("refresh", "use", "candidate", "share", "promote", "return", "rollback", "hold", "resume")
    },
}
"""Routes that the client leaves out, and who asks for them."""
OF_THESE = {
    *("Liveness", "Refreshed", "DeploymentRequest", "UseRequest", "ShareRequest", "CandidateRequest"),
    *("EventsRequest", "ItemsRequest", "RecommendBatchRequest"),  # what is around requests that the client has
    *(
        name
        for name, kind in vars(operator_responses).items()
        if is_typeddict(kind) and name not in vars(answers) | vars(model_answers)
    ),
}
"""Their schemas."""

ANSWERS = {
    kind.__name__: kind
    for module in (answers, model_answers)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
}
REQUESTS = {name: kind for name, kind in vars(requests).items() if typing.is_typeddict(kind)}


@pytest.fixture(scope="module")
def openapi(client):
    """The service's own description."""
    return client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def schemas(openapi):
    """Its schemas."""
    return openapi["components"]["schemas"]


def read_schema(schema):  # noqa: PLR0911 - one return for each form
    """The types that a schema allows."""
    if "anyOf" in schema:
        return simplify(frozenset().union(*map(read_schema, schema["anyOf"])))
    if "$ref" in schema:
        return frozenset({schema["$ref"].rpartition("/")[2]})
    if "enum" in schema or "const" in schema:
        return frozenset({("one of", frozenset(schema.get("enum", [schema.get("const")])))})
    if "type" not in schema:
        return frozenset({"anything"})
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if kinds == ["array"]:
        return frozenset({("array of", read_schema(schema["items"]))})
    if kinds == ["object"]:
        members = schema.get("additionalProperties", True)
        return frozenset({("object of", read_schema({} if members is True else members))})
    return simplify(frozenset(kinds))


NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null", datetime: "string"}


def read_hint(hint):
    """The types that an annotation allows, in the same words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return simplify(frozenset().union(*map(read_hint, inner)))
    if origin is typing.Literal:
        return frozenset({("one of", frozenset(inner))})
    if origin in (tuple, Sequence):
        return frozenset({("array of", read_hint(inner[0]))})
    if origin in (dict, Mapping):
        return frozenset({("object of", read_hint(inner[1]))})
    if hint is typing.Any:
        return frozenset({"anything"})
    return frozenset({NAMES.get(hint, hint.__name__)})


def simplify(kinds):
    """Integers are numbers."""
    return kinds - {"integer"} if "number" in kinds else kinds


def describe(kind):
    """The fields of a class with their types, and the names of those that are always there."""
    if dataclasses.is_dataclass(kind):
        needed = {field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING}
        hints = {field.name: typing.get_type_hints(kind)[field.name] for field in dataclasses.fields(kind)}
    else:
        needed, hints = set(kind.__required_keys__), typing.get_type_hints(kind)
    return {name: read_hint(hint) for name, hint in hints.items()}, needed


@pytest.mark.parametrize("name", [*ANSWERS, *REQUESTS])
def test_fields_are_those_of_the_schema(schemas, name):
    """Names, types, and which of them may be missing; None stands for what an answer lacks."""
    schema = schemas[name]
    ours, needed = describe((ANSWERS | REQUESTS)[name])
    theirs = {field: read_schema(each) for field, each in schema["properties"].items()}
    assert needed == set(schema.get("required", []))
    assert ours.keys() == theirs.keys()
    if name in ANSWERS:
        optional = ours.keys() - needed
        ours, theirs = (
            {field: kinds - {"null"} if field in optional else kinds for field, kinds in each.items()}
            for each in (ours, theirs)
        )
    assert ours == theirs


def test_every_schema_has_its_class(schemas):
    """Or is of a route that the client leaves out."""
    assert schemas.keys() - OF_THESE == {*ANSWERS, *REQUESTS}
    assert schemas.keys() >= OF_THESE


def test_every_route_has_its_call(openapi):
    """Or is left out for a reason; with all of its query parameters."""
    described = {
        (method.upper(), path): {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    }
    called = {
        (call.method, getattr(call, "route", call.path.partition("?")[0])): {
            name for name, _ in parse_qsl(call.path.partition("?")[2])
        }
        for call in CALLS
    }
    assert {route: names for route, names in described.items() if route not in NOT_FOR_APPLICATIONS} == called
    assert NOT_FOR_APPLICATIONS.keys() <= described.keys()


def test_limits_are_the_service_s(schemas):
    """Of time, and of what one request of events holds."""
    time = schemas["RecommendRequest"]["properties"]["timeout_ms"]
    assert (time["default"], time["minimum"]) == (requests.DEFAULT_TIMEOUT_MS, requests.MIN_TIMEOUT_MS)
    assert schemas["EventsRequest"]["properties"]["events"]["maxItems"] == requests.MAX_EVENTS
    assert requests.MAX_EVENTS_BYTES == EVENTS_MAX_BYTES


def test_exceptions_are_of_problems_that_there_are():
    """By the same words, and with the statuses that the service gives them."""

    def list_kinds(kind):
        return {kind}.union(*map(list_kinds, kind.__subclasses__()))

    problems = {kind.slug: kind.status for kind in list_kinds(Problem) if hasattr(kind, "slug")}
    assert set(errors._BY_CODE) <= problems.keys()
    assert set(errors._BY_STATUS) - {502, 504} <= set(problems.values())


def test_a_receipt_is_the_answer_to_events(openapi):
    """The schema that the route names is the class that the client reads."""
    content = openapi["paths"]["/events"]["post"]["responses"]["200"]["content"]["application/json"]
    assert content["schema"]["$ref"].endswith(f"/{Receipt.__name__}")
