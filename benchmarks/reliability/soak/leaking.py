"""The control: the service with a leak, which a soak must notice. It never forgets what any request came with."""

import sys
from collections.abc import MutableMapping
from typing import Any

from starlette.types import Receive, Scope, Send

from service.cli import main
from service.http.outer_middleware import RequestMiddleware

_kept: list[MutableMapping[str, Any]] = []
_serve = RequestMiddleware.__call__


async def _keep(middleware: RequestMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
    _kept.append(scope)
    await _serve(middleware, scope, receive, send)


if __name__ == "__main__":
    RequestMiddleware.__call__ = _keep  # type: ignore[assignment]  # on purpose
    sys.exit(main())
