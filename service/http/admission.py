"""Admission control: a request over the limit of requests in flight is refused at once, before its body is read.

Events have a limit of their own, so that recommendations cannot crowd them out, nor the reverse. A request does not
count while its body is arriving. Probes are always admitted, so that an operator can see an overloaded service.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import Overloaded
from service.http.body_memory import BODY, BodyBudget
from service.http.problems import answer_problem
from service.telemetry.metrics import Metrics, Shed

EVENTS = "/events"
PROBES = frozenset({"/health/live", "/health/ready", "/metrics", "/status"})
REQUEST_LIMIT = "request_limit"
"""Key of a request's state: the RequestLimit that it counts towards."""


class RequestLimit:
    """The limit of requests in flight of one kind."""

    __slots__ = ("_metrics", "_reason", "bodies", "in_flight", "maximum")

    def __init__(self, reason: Shed, limit: int, *, metrics: Metrics, bodies: BodyBudget) -> None:
        self._reason: Shed = reason
        self.maximum = limit
        self._metrics = metrics
        self.in_flight = 0
        self.bodies = bodies
        """The memory budget for bodies, shared by all limits of the process."""

    def refuse(self) -> Overloaded:
        """Count a refusal and return its problem."""
        self._metrics.shed(self._reason)
        return Overloaded()

    @contextmanager
    def release_while(self) -> Iterator[None]:
        """Do not count the request meanwhile. Raises Overloaded if the block ends normally and the limit is reached."""
        self.in_flight -= 1
        came_back = False
        try:
            yield
            came_back = True
        finally:
            crowded = self.in_flight >= self.maximum
            self.in_flight += 1  # in any case: Admission subtracts it again
        if came_back and crowded:
            raise self.refuse()


class Admission:
    """ASGI middleware inside RequestMiddleware, so that refusals are counted like all requests."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, max_requests: int, max_event_requests: int, max_body_bytes: int
    ) -> None:
        self._app = app
        bodies = BodyBudget(max_body_bytes)
        self._requests = RequestLimit("requests_full", max_requests, metrics=metrics, bodies=bodies)
        self._events = RequestLimit("events_full", max_event_requests, metrics=metrics, bodies=bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        limit = self._events if scope["path"] == EVENTS else self._requests
        if limit.in_flight >= limit.maximum:
            scope["endpoint"] = self  # tells RequestMiddleware to look the route up itself
            await answer_problem(limit.refuse(), scope)(scope, receive, send)
            return
        limit.in_flight += 1
        state = scope["state"]
        state[REQUEST_LIMIT] = limit
        try:
            await self._app(scope, receive, send)
        finally:
            limit.in_flight -= 1
            if BODY in state:
                state.pop(BODY).end()
