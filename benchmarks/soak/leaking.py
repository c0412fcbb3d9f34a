"""The control: the service with a leak, which a soak must notice. It never forgets what any request came with."""

import sys
from collections.abc import MutableMapping
from typing import Any

from starlette.types import Receive, Scope, Send

from service.cli import main
from service.envelope import Envelope

_kept: list[MutableMapping[str, Any]] = []
_serve = Envelope.__call__


async def _keep(envelope: Envelope, scope: Scope, receive: Receive, send: Send) -> None:
    _kept.append(scope)
    await _serve(envelope, scope, receive, send)


if __name__ == "__main__":
    Envelope.__call__ = _keep  # type: ignore[assignment]  # on purpose
    sys.exit(main())
