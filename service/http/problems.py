"""Answers every error as application/problem+json (RFC 9457), never with input in it."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from service.errors import (
    Internal,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    Problem,
    SearchNotReady,
    StoreUnavailable,
    Unauthorized,
)
from service.telemetry.problems import PROBLEM

MEDIA_TYPE = "application/problem+json"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""What routes may have, in the order in which the header Allow names them."""
RETRY_AFTER_S = (1, 2, 3)
"""One is drawn per answer, so that clients refused together do not all retry together."""


def answer_problem(problem: Problem, scope: Scope) -> Response:
    """The response that tells a client of a problem."""
    if problem.status >= 500:
        scope["state"][PROBLEM] = problem.reason
    headers: dict[str, str] = {}
    body: dict[str, object] = {
        "type": f"urn:nextitem:problem:{problem.slug}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "request_id": scope["state"]["request_id"],
    }
    match problem:
        case Invalid():
            body["errors"] = [asdict(field_error) for field_error in problem.field_errors]
        case Unauthorized():
            headers["WWW-Authenticate"] = "Bearer"
        case MethodNotAllowed():
            headers["Allow"] = ", ".join(problem.allowed)
        case StoreUnavailable() | Overloaded() | SearchNotReady():
            headers["Retry-After"] = str(random.choice(RETRY_AFTER_S))  # noqa: S311 - no secret
    return Response(orjson.dumps(body), problem.status, headers, MEDIA_TYPE)


def install_problems(app: FastAPI, *, routes: Sequence[BaseRoute]) -> None:
    """Install the handlers that answer Problems and the framework's own errors. `routes` are all that there are."""

    async def answer_framework(request: Request, error: Exception) -> Response:
        problem: Problem = Internal()
        if isinstance(error, HTTPException) and error.status_code == 404:
            problem = NotFound()
        elif isinstance(error, HTTPException) and error.status_code == 405:
            problem = MethodNotAllowed(_list_methods(routes, request.scope))
        return answer_problem(problem, request.scope)

    app.add_exception_handler(Problem, _answer_ours)
    app.add_exception_handler(HTTPException, answer_framework)
    app.add_exception_handler(RequestValidationError, _answer_validation)


async def _answer_ours(request: Request, error: Exception) -> Response:
    return answer_problem(error if isinstance(error, Problem) else Internal(), request.scope)


async def _answer_validation(request: Request, _error: Exception) -> Response:
    # FastAPI's own handler quotes the input and fails on NaN. No route leaves validation to FastAPI.
    return answer_problem(Invalid(), request.scope)


def _list_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """The methods of all routes with the path of the first that matches: the framework names those of that one only."""
    paths = (getattr(route, "path", "") for route in routes if route.matches(scope)[0] is not Match.NONE)
    path = next(paths, None)
    found = {
        method for route in routes if getattr(route, "path", "") == path for method in getattr(route, "methods", ())
    }
    return [method for method in METHODS if method in found]
