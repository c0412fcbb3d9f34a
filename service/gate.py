"""Who may pass: every route states the scope that it needs, and a key with that scope opens it.

A route that states nothing cannot be made: nothing is open by mistake. Scopes stand in OpenAPI's own `security`.
"""

import hmac
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from service.errors import Forbidden, KeysUnusable, StartFailed, Unauthorized
from service.key_file import Key, read_keys, split_key
from service.key_file import Scope as KeyScope

SCHEME = "key"
"""The name of the security scheme in OpenAPI."""
REREAD_S = 1.0
"""How often the file may be looked at, and thus how long a key that was taken back may still pass."""

_NOBODY = "0" * 64
_log = logging.getLogger(__name__)


class Gate:
    """Compares keys with the file of keys, which is read anew when it changes. Without a file everybody passes."""

    def __init__(self, file: Path | None) -> None:
        """Raises StartFailed when the file cannot be used."""
        self._file = file
        self._keys: Mapping[str, Key] = {}
        self._seen: tuple[int, ...] | None = None
        self._looked_s = time.monotonic()
        if file is not None:
            try:
                self._seen = _look_at(file)
                self._keys = {key.id: key for key in read_keys(file)}
            except KeysUnusable as error:
                raise StartFailed(f"the keys cannot be used: {error}") from error

    def check(self, request: Request, scope: KeyScope) -> None:
        """Let a request pass that brings a key with this scope. Raises Unauthorized or Forbidden."""
        if self._file is None:
            return
        self._look(self._file)
        given = request.headers.getlist("authorization")
        scheme, _, credentials = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        parts = split_key(credentials.strip(" ")) if scheme.lower() == "bearer" else None
        if parts is None:
            raise Unauthorized
        key_id, digest = parts
        key = self._keys.get(key_id)
        # An unknown id takes as long as a wrong secret.
        if not hmac.compare_digest(digest, key.sha256 if key else _NOBODY) or key is None:
            raise Unauthorized
        if scope not in key.scopes:
            raise Forbidden(f"This route needs a key with the scope {scope}.")

    def _look(self, file: Path) -> None:
        """Read the file if it is another one than last time. One that cannot be read lets nobody pass."""
        now_s = time.monotonic()
        if now_s - self._looked_s < REREAD_S:
            return
        self._looked_s = now_s
        seen = _look_at(file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys = {key.id: key for key in read_keys(file)}
        except KeysUnusable as error:
            self._keys = {}
            _log.error("Nobody is let in until the file of keys is mended", extra={"fields": {"why": str(error)}})
        else:
            _log.info("The file of keys was read anew", extra={"fields": {"keys": len(self._keys)}})


def needs(scope: KeyScope | None) -> dict[str, Any]:
    """What a route states in its `openapi_extra`: the scope that it needs, or None when it is for everybody."""
    return {"security": [{SCHEME: [scope]}] if scope else []}


class GuardedRoute(APIRoute):
    """A route that checks the key before anything else of a request is read."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As FastAPI, but for a line end at the end, which `$` of its patterns lets pass: paths are exact."""
        return (Match.NONE, {}) if scope["path"].endswith("\n") else super().matches(scope)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler behind the gate: FastAPI's own where it has parameters to read, else the endpoint itself.

        Raises TypeError for a route that states no scope.
        """
        handle = super().get_route_handler() if self.param_convertors else self.endpoint
        security = (self.openapi_extra or {}).get("security")
        if security is None:
            raise TypeError(f"{self.path}: state what it needs by openapi_extra=needs(...)")
        if not security:
            return handle
        [scope] = security[0][SCHEME]

        async def check_and_handle(request: Request) -> Response:
            request.app.state.service.gate.check(request, scope)
            return await handle(request)

        return check_and_handle


def _look_at(file: Path) -> tuple[int, ...] | None:
    """What changes when the file is replaced or written, or None when it is not there."""
    try:
        state = file.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size
