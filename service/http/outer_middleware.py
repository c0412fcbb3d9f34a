"""The outermost middleware: gives each request an id and a timer, counts it, and answers even after a bug."""

import logging
import re
from collections.abc import Iterable, Sequence

import uuid_utils
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Internal
from service.health import Health
from service.http.problems import answer_problem
from service.http.protocol import REFUSAL
from service.telemetry.metrics import UNMATCHED, Metrics
from service.telemetry.problems import PROBLEM, ProblemLog
from service.telemetry.stage_timer import StageTimer

CLIENT_LEFT = 499
"""Recorded for a client that disconnected before its answer."""

IMMUTABLE = "immutable"
"""Key of a request's state: set if what it got never changes, so that caches may keep it."""

_IMMUTABLE_HEADERS = (
    (b"cache-control", b"public, max-age=31536000, immutable"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
)
_HEADERS = ((b"cache-control", b"no-store"), *_IMMUTABLE_HEADERS[1:])  # answers are private to one client
"""Headers of every other answer. There is no CORS: pages of other origins may not read answers."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:+/=-]{1,128}")
_log = logging.getLogger(__name__)


class RequestMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, problems: ProblemLog, health: Health, routes: Sequence[BaseRoute]
    ) -> None:
        """Take the routes, to name the route of a request that was refused before routing."""
        self._app = app
        self._metrics = metrics
        self._problems = problems
        self._health = health
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        timer = StageTimer()
        request_id = _find_id(scope["headers"]) or str(uuid_utils.uuid7())
        state = scope.setdefault("state", {})
        state.update(request_id=request_id, timer=timer)
        code = 0

        async def send_with_id(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                ours = _IMMUTABLE_HEADERS if IMMUTABLE in state else _HEADERS
                headers = [*message.get("headers", ()), *ours, (b"x-request-id", request_id.encode())]
                if self._health.leaving:  # so that the client's next request does not meet a closing connection
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            await send(message)

        try:
            refusal = state.get(REFUSAL)
            await (self._app if refusal is None else answer_problem(refusal, scope))(scope, receive, send_with_id)
        except ClientDisconnect:
            code = code or CLIENT_LEFT
        except Exception:  # a bug: the client gets an answer, and the log the details
            _log.exception("Request failed with an unexpected error", extra={"fields": {"request_id": request_id}})
            if code:
                raise  # the answer is half sent: only closing the connection can tell the client
            await answer_problem(Internal(), scope)(scope, receive, send_with_id)
        finally:
            route, code = self._name_route(scope), code or CLIENT_LEFT
            self._metrics.request_ended(route=route, method=scope["method"], code=code, timer=timer)
            if PROBLEM in state:
                self._problems.note(route=route, code=code, reason=state[PROBLEM], request_id=request_id)

    def _name_route(self, scope: Scope) -> str:
        """The route's path template, or the path of FastAPI's own page, which holds no ids."""
        if "route" in scope:
            return getattr(scope["route"], "path_format", UNMATCHED)
        if "endpoint" not in scope:
            return UNMATCHED
        for route in self._routes:  # Admission refused it before routing
            if route.matches(scope)[0] is not Match.NONE:
                return getattr(route, "path_format", UNMATCHED)
        return str(scope["path"])


def _find_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The X-Request-Id of the client or proxy, if there is one and it is safe to log."""
    given = [value for name, value in headers if name == b"x-request-id"]
    return given[0].decode() if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]) else None
