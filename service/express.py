"""Routes without parameters, found in a dictionary and called with nothing in between.

FastAPI describes them, and answers all that is not found here: paths with parameters, wrong methods, its own pages. Its
way to a handler takes several times as long as the handlers themselves (docs/experiments.md).
"""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import Problem
from service.gate import GuardedRoute
from service.problems import answer_problem


class Express:
    """ASGI middleware, the innermost: what a handler raises beside a Problem is for the Envelope."""

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._stops = {
            (route.path, method): (route, route.get_route_handler())
            for route in routes
            if isinstance(route, GuardedRoute) and not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        stop = self._stops.get((scope["path"], scope["method"])) if scope["type"] == "http" else None
        if stop is None:
            await self._app(scope, receive, send)
            return
        scope["route"], handle = stop
        try:
            response = await handle(Request(scope, receive))
        except Problem as problem:
            response = answer_problem(problem, scope)
        await response(scope, receive, send)
