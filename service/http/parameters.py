"""Helpers of all routes: path and query parameters, JSON answers, and their description in OpenAPI."""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import Path
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from model.contract.vocabulary import is_valid_id
from service.api.responses import ProblemDescription
from service.errors import FieldError, Invalid, Problem


class TextConvertor(PathConvertor):
    """Matches any text, including `/` and line ends, so that the route itself rejects an invalid id."""

    regex = "(?s:.*)"


register_url_convertor("text", TextConvertor())

PathId = Annotated[str, Path(description="percent-encoded, `/` included")]


def write(answer: object, *, status: int = 200) -> Response:
    """An answer as JSON."""
    return Response(orjson.dumps(answer), status, media_type="application/json")


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
