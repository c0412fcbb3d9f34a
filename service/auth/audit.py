"""The audit log: which key listed users, exported or erased one, and which keys were added or removed.

Its lines have `nextitem.audit` as `logger` and are written at every log level. They name a user by the digest that the
store's tombstones hold: a known id can be found, but no id can be read from the log.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from starlette.requests import Request

from service.store.redis_keys import digest_user

KEY_ID = "key_id"
"""Key of a request's state: the id of the API key that authorized it."""

_log = logging.getLogger("nextitem.audit")
_log.setLevel(logging.INFO)


@contextmanager
def audited(request: Request, action: Literal["export", "erasure"], user_id: str) -> Iterator[None]:
    """Write one audit line when the action inside ends, saying whether it was done. `key` is null without API keys."""
    state = request.scope["state"]
    outcome = "failed"
    try:
        yield
        outcome = "done"
    finally:
        fields = {"user": digest_user(user_id), "key": state.get(KEY_ID), "request_id": state["request_id"]}
        _log.info("Audit: %s of a user's data %s", action, outcome, extra={"fields": fields})


def users_listed(request: Request, count: int) -> None:
    """Write an audit line: this many ids of users were shown."""
    state = request.scope["state"]
    fields = {"users": count, "key": state.get(KEY_ID), "request_id": state["request_id"]}
    _log.info("Audit: users listed", extra={"fields": fields})


def keys_changed(*, added: list[str], removed: list[str]) -> None:
    """Write an audit line: the API key file changed."""
    _log.info("Audit: API keys changed", extra={"fields": {"added": added, "removed": removed}})
