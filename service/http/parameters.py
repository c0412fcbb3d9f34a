"""Helpers of all routes: path and query parameters, JSON answers, and their description in OpenAPI."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import Path
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from model.contract.id_rule import is_valid_id
from service.api.responses import ProblemDescription
from service.errors import FieldError, Invalid, Problem
from service.http.cycle import WHOLE


class TextConvertor(PathConvertor):
    """Matches any text, including `/` and line ends, so that the route itself rejects an invalid id."""

    regex = "(?s:.*)"


register_url_convertor("text", TextConvertor())

MAX_QUERY = 100
"""Maximum characters of a search."""
MAX_FOUND = 50
DEFAULT_FOUND = 20
"""How many items a search finds at most: at most, and where the request does not say."""
_SEARCH_MAX_BYTES = 2048
"""Beyond it a query string is not read: MAX_QUERY characters take 1,200 bytes, percent-encoded."""

PathId = Annotated[str, Path(description="percent-encoded, `/` included")]


class JsonAnswer(Response):
    """A whole answer as JSON. It passes the layers once, with its body, where the server takes that."""

    def __init__(self, body: bytes, *, status: int = 200) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if WHOLE not in scope.get("extensions", ()):
            await super().__call__(scope, receive, send)
            return
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        head["body"] = self.body
        await send(head)


def write(answer: object, *, status: int = 200) -> Response:
    """An answer as JSON."""
    return JsonAnswer(orjson.dumps(answer), status=status)


def refuse_query(request: Request) -> None:
    """Raise Invalid if there are query parameters."""
    if request.scope["query_string"]:
        raise Invalid([FieldError("", "extra_forbidden", "this route does not take this query parameter")])


def check_user(user_id: str) -> None:
    """Raise Invalid if the path holds no valid user id."""
    if not is_valid_id(user_id):
        raise Invalid(
            [FieldError("", "pattern", "the user_id in the path is 1 to 256 printable ASCII characters, no spaces")]
        )


def read_flag(request: Request, name: str) -> bool:
    """The route's only query parameter: `true` or `false`, default false. Raises Invalid for anything else."""
    given = request.query_params.multi_items()
    if any(key != name for key, _ in given):
        raise Invalid([FieldError("", "extra_forbidden", "this route does not take this query parameter")])
    values = [value for _, value in given]
    if values not in ([], ["true"], ["false"]):
        raise Invalid([FieldError("", "enum", f"the query parameter {name} is true or false, given once")])
    return values == ["true"]


def read_search(request: Request) -> tuple[str, int]:
    """The query parameters `query`, without spaces around it, and `limit`. Raises Invalid with all that is wrong."""
    too_long = FieldError("", "too_long", f"the query parameter query has at most {MAX_QUERY} characters")
    if len(request.scope["query_string"]) > _SEARCH_MAX_BYTES:
        raise Invalid([too_long])
    given = request.query_params.multi_items()
    values = dict(given)
    query, limit = values.get("query", "").strip(), values.get("limit", str(DEFAULT_FOUND))
    wrong: list[FieldError] = []
    if not values.keys() <= {"query", "limit"}:
        wrong.append(FieldError("", "extra_forbidden", "this route does not take this query parameter"))
    if len(given) > len(values):
        wrong.append(FieldError("", "repeated", "a query parameter is given once"))
    if not query:
        wrong.append(FieldError("", "missing", "the query parameter query is required, and not only spaces"))
    if len(query) > MAX_QUERY:
        wrong.append(too_long)
    if "\ufffd" in query:  # what cannot be decoded becomes that
        wrong.append(FieldError("", "pattern", "the query parameter query is UTF-8, percent-encoded"))
    if not re.fullmatch("[0-9]{1,3}", limit) or not 1 <= int(limit) <= MAX_FOUND:
        wrong.append(FieldError("", "range", f"the query parameter limit is an integer from 1 to {MAX_FOUND}"))
    if wrong:
        raise Invalid(wrong)
    return query, int(limit)


def read_count(request: Request, name: str, *, default: int, most: int) -> int:
    """The route's only query parameter: an integer from 1 to `most`. Raises Invalid for anything else."""
    given = request.query_params.multi_items()
    if any(key != name for key, _ in given):
        raise Invalid([FieldError("", "extra_forbidden", "this route does not take this query parameter")])
    values = [value for _, value in given] or [str(default)]
    if len(values) > 1 or not re.fullmatch("[0-9]{1,3}", values[0]) or not 1 <= int(values[0]) <= most:
        raise Invalid([FieldError("", "range", f"the query parameter {name} is an integer from 1 to {most}")])
    return int(values[0])


def describe_problems(*problems: type[Problem]) -> Mapping[int | str, dict[str, Any]]:
    """The responses that OpenAPI shows for the problems a route may answer."""
    schema = {"$ref": f"#/components/schemas/{ProblemDescription.__name__}"}
    titles: dict[int, list[str]] = {}
    for problem in problems:
        titles.setdefault(problem.status, []).append(problem.title)
    return {
        status: {"description": "; ".join(words), "content": {"application/problem+json": {"schema": schema}}}
        for status, words in titles.items()
    }


def describe_body(*names: str) -> dict[str, Any]:
    """The request body that OpenAPI shows: one of the named schemas."""
    schemas = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
