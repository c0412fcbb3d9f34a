"""A static route table: routes without path parameters are looked up in a dictionary and called directly.

FastAPI describes these routes and handles everything else: paths with parameters, wrong methods, its own pages. Its
routing takes several times as long as the handlers themselves (docs/lab/2026-11-21-path-of-a-request.md). HEAD is
answered as GET.
"""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.guard import GuardedRoute
from service.errors import NotFound, Problem
from service.http.problems import answer_problem


class StaticRoutes:
    """The innermost ASGI middleware. Exceptions other than Problem go on to RequestMiddleware."""

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        ours = [route for route in routes if isinstance(route, GuardedRoute)]
        self._routes = {
            (route.path.encode(), method): (route, route.get_route_handler())
            for route in ours
            if not route.param_convertors
            for method in route.methods or ()
        }
        self._prefixes = tuple(_literal_prefix(route) for route in ours if route.param_convertors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = self._routes.get((scope["raw_path"], scope["method"]))
        if found is None:
            await self._serve_others(scope, receive, send)
            return
        scope["route"], handle = found
        try:
            response = await handle(Request(scope, receive))
        except Problem as problem:
            response = answer_problem(problem, scope)
        await response(scope, receive, send)

    async def _serve_others(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope["raw_path"]
        if b"%" in path and not path.startswith(self._prefixes):
            # Only ids may be encoded: serving other spellings of a path would bypass a proxy's rules for that path.
            await answer_problem(NotFound(), scope)(scope, receive, send)
        elif scope["method"] == "HEAD":
            asked = {**scope, "method": "GET"}
            try:
                await self(asked, receive, send)  # the server omits the body
            finally:
                scope.update((name, asked[name]) for name in ("route", "endpoint") if name in asked)
        else:
            await self._app(scope, receive, send)


def _literal_prefix(route: GuardedRoute) -> bytes:
    """The part of a route's path before its first parameter."""
    return route.path.partition("{")[0].encode()
