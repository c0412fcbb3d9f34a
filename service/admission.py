"""Room for requests: beyond so many in flight the next is refused at once, before its body is read.

Events have room of their own, so that no flood of questions keeps them out, nor the other way round. Probes always get
in: an operator must see a service that is full.
"""

from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import Overloaded
from service.metrics import Metrics, Shed
from service.problems import answer_problem

EVENTS = "/events"
PROBES = ("/health/", "/metrics")


@dataclass(slots=True)
class _Room:
    reason: Shed
    limit: int
    taken: int = 0


class Admission:
    """ASGI middleware inside the Envelope, which counts what is refused here like every request."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, max_requests: int, max_event_requests: int) -> None:
        self._app = app
        self._metrics = metrics
        self._requests = _Room("requests_full", max_requests)
        self._events = _Room("events_full", max_event_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or scope["path"].startswith(PROBES):
            await self._app(scope, receive, send)
            return
        room = self._events if scope["path"] == EVENTS else self._requests
        if room.taken >= room.limit:
            self._metrics.shed(room.reason)
            scope["endpoint"] = self  # the envelope then knows the path for one of ours, if it is
            await answer_problem(Overloaded(), scope)(scope, receive, send)
            return
        room.taken += 1
        try:
            await self._app(scope, receive, send)
        finally:
            room.taken -= 1
