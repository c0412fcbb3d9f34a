"""Authorization: each route declares the scope that it requires and checks the request's API key for it.

A route without a declaration cannot be created, so none is open by mistake. OpenAPI's `security` shows the scopes.
"""

import hmac
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Set
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from service.auth.audit import KEY_ID, keys_changed
from service.auth.key_file import Key, read_keys, split_key
from service.auth.key_file import Scope as KeyScope
from service.errors import Forbidden, KeysUnusable, Unauthorized
from service.system.fingerprint import stat_fingerprint

SCHEME = "key"
"""The name of the security scheme in OpenAPI."""
AUTH_GUARD = "auth_guard"
"""Where in a request's scope the application's AuthGuard is."""
RELOAD_S = 1.0
"""Shortest interval between checks of the file, and so how long a revoked key may still be accepted."""

_NO_DIGEST = "0" * 64
_log = logging.getLogger(__name__)


class AuthGuard:
    """Checks keys against the API key file, which is reloaded when it changes. Without a file every request passes.

    While the file is unreadable every request is rejected, and the file is read again every RELOAD_S.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._keys: Mapping[str, Key] = {}
        self._known: Set[str] = frozenset()
        """The key ids of the last readable file."""
        self._fingerprint: tuple[int, ...] | None = None
        """The file's stat fingerprint when it was last read; None if it was unreadable."""
        self._fault: str | None = None
        self._checked_s = float("-inf")
        if file is not None:
            self._reload_if_changed(file)

    def check(self, request: Request, scope: KeyScope) -> None:
        """Check that a request carries a key with this scope. Raises Unauthorized or Forbidden."""
        if self._file is None:
            return
        self._reload_if_changed(self._file)
        given = request.headers.getlist("authorization")
        scheme, _, credentials = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        parts = split_key(credentials.strip(" ")) if scheme.lower() == "bearer" else None
        if parts is None:
            raise Unauthorized
        key_id, digest = parts
        key = self._keys.get(key_id)
        # Compare even for an unknown id, so that it takes as long as a wrong secret.
        if not hmac.compare_digest(digest, key.sha256 if key else _NO_DIGEST) or key is None:
            raise Unauthorized
        if scope not in key.scopes:
            raise Forbidden(f"This route needs a key with the scope {scope}.")
        request.scope["state"][KEY_ID] = key.id

    def require_any(self, request: Request, *scopes: KeyScope, what: str) -> None:
        """Check that the key of a request that passed `check` has one of these scopes, too. Raises Forbidden.

        `what` says what needs it.
        """
        if self._file is None:
            return
        key = self._keys.get(request.scope["state"].get(KEY_ID))
        if key is None or not set(scopes) & set(key.scopes):
            raise Forbidden(f"{what} needs a key with the scope {' or '.join(scopes)}, too.")

    def _reload_if_changed(self, file: Path) -> None:
        """Reload the file if it changed or was unreadable, at most every RELOAD_S."""
        now_s = time.monotonic()
        if now_s - self._checked_s < RELOAD_S:
            return
        first, self._checked_s = self._checked_s == float("-inf"), now_s
        fingerprint = stat_fingerprint(file)
        if fingerprint is not None and fingerprint == self._fingerprint:
            return
        try:
            keys = read_keys(file)
        except KeysUnusable as error:
            self._fingerprint, self._keys = None, {}
            if str(error) != self._fault:
                self._fault = str(error)
                _log.error(
                    "API key file is unreadable: rejecting all requests until it is fixed",
                    extra={"fields": {"why": self._fault}},
                )
            return
        self._fingerprint, self._fault = fingerprint, None
        self._keys = {key.id: key for key in keys}
        before, self._known = self._known, self._keys.keys()
        if not first:
            _log.info("API key file reloaded", extra={"fields": {"keys": len(keys)}})
        if not first and self._known != before:
            keys_changed(added=[*(self._known - before)], removed=[*(before - self._known)])


def requires_scope(scope: KeyScope | None) -> dict[str, Any]:
    """A route's declaration for `openapi_extra`: the scope that it requires, or None for a public route."""
    return {"security": [{SCHEME: [scope]}] if scope else []}


class GuardedRoute(APIRoute):
    """A route that checks the API key before it reads anything else of the request."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as FastAPI does, but exactly: no percent-encoded suffix, and no trailing newline, which `$` accepts."""
        end = self.path.rpartition("}")[2].encode()
        exact = scope["raw_path"].endswith(end) and not scope["path"].endswith("\n")
        return super().matches(scope) if exact else (Match.NONE, {})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The guarded handler: FastAPI's own for a route with parameters, else the endpoint itself.

        Raises TypeError for a route without a declared scope.
        """
        handle = super().get_route_handler() if self.param_convertors else self.endpoint
        security = (self.openapi_extra or {}).get("security")
        if security is None:
            raise TypeError(f"{self.path}: state what it requires with openapi_extra=requires_scope(...)")
        if not security:
            return handle
        [scope] = security[0][SCHEME]

        async def check_and_handle(request: Request) -> Response:
            guard: AuthGuard = request.scope[AUTH_GUARD]
            guard.check(request, scope)
            return await handle(request)

        return check_and_handle
