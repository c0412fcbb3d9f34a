"""What every request gets, whatever its route: an id, a clock, a place in the metrics and an answer even to a bug."""

import logging

import uuid_utils
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Internal
from service.health import Health
from service.metrics import UNMATCHED, Metrics
from service.problems import answer_problem
from service.stopwatch import Stopwatch

CLIENT_LEFT = 499
"""Recorded where no answer could be given."""

_log = logging.getLogger(__name__)


class Envelope:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, health: Health) -> None:
        self._app = app
        self._metrics = metrics
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stopwatch = Stopwatch()
        request_id = str(uuid_utils.uuid7())
        scope.setdefault("state", {}).update(request_id=request_id, stopwatch=stopwatch)
        code = 0

        async def send_with_id(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                if self._health.draining:  # or the client's next request would meet a connection that is being closed
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            code = code or CLIENT_LEFT
        except Exception:  # whatever it is: a client gets an answer even to a bug, and the log the rest
            _log.exception("A request failed", extra={"fields": {"request_id": request_id}})
            if code:
                raise  # the answer is half sent: only the connection's end can tell
            await answer_problem(Internal(), scope)(scope, receive, send_with_id)
        finally:
            self._metrics.request_ended(
                route=_template(scope),
                method=scope["method"],
                code=code or CLIENT_LEFT,
                stopwatch=stopwatch,
            )


def _template(scope: Scope) -> str:
    """The route's path as it was declared. FastAPI names no route for its own pages, whose paths hold no ids."""
    if "route" in scope:
        return getattr(scope["route"], "path_format", UNMATCHED)
    return str(scope["path"]) if "endpoint" in scope else UNMATCHED
