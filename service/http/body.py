"""Reads a request's body: checks the media type, limits the bytes while they arrive, then parses JSON."""

import asyncio
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from service.errors import BodyTooLarge, FieldError, Invalid, MalformedJson, RequestTimeout, UnsupportedMediaType
from service.http.admission import REQUEST_LIMIT, RequestLimit
from service.http.body_memory import BODY, SMALL_BYTES, BodyBudget
from service.http.protocol import ARRIVED, REFUSAL

EVENTS_MAX_BYTES = 256 * 1024
RECOMMEND_MAX_BYTES = 1024 * 1024
BATCH_MAX_BYTES = 4 * 1024 * 1024
BODY_PROBLEMS = (MalformedJson, RequestTimeout, Invalid, BodyTooLarge, UnsupportedMediaType)
"""Problems that a route with a body may answer."""


async def read_object(request: Request, *, max_bytes: int) -> dict[str, Any]:
    """The JSON object in a request's body. Raises BadRequest if there is none, or Overloaded."""
    length = _check_head(request)
    if length.isdigit() and int(length[:20]) > max_bytes:
        raise BodyTooLarge  # before reading anything
    state = request.scope["state"]
    if ARRIVED in state:  # the usual case: the whole request is here
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        content = message["body"]
        if len(content) > SMALL_BYTES:
            _admit(len(content), max_bytes, state, state[REQUEST_LIMIT].bodies)
            state[BODY].arrived()
    else:
        content = await _receive(request, max_bytes)
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise MalformedJson from error
    if not isinstance(document, dict):
        raise Invalid([FieldError("", "object_type", "must be an object")])
    return document


def _check_head(request: Request) -> bytes:
    """The declared Content-Length, or b"". Raises UnsupportedMediaType for anything but plain JSON."""
    media_types, length = [], b""
    for name, value in request.scope["headers"]:
        if name == b"content-type":
            media_types.append(value)
        elif name == b"content-length":
            length = value
        elif name == b"content-encoding":
            raise UnsupportedMediaType
    if len(media_types) != 1 or not (media_types[0] == b"application/json" or _is_json(media_types[0])):
        raise UnsupportedMediaType
    return length


def _is_json(declared: bytes) -> bool:
    media_type, *parameters = (part.strip().lower() for part in declared.split(b";"))
    plain = (b"", b"charset=utf-8", b'charset="utf-8"')
    return media_type == b"application/json" and all(parameter in plain for parameter in parameters)


async def _receive(request: Request, max_bytes: int) -> bytes:
    """Receive the body. Meanwhile the request does not count as in flight; a large body uses the memory budget."""
    state = request.scope["state"]
    limit: RequestLimit = state[REQUEST_LIMIT]
    try:
        with limit.release_while():
            content = await _read(request, max_bytes, limit.bodies)
    except asyncio.CancelledError:
        if BODY in state:
            state[BODY].explain_cancellation()
        raise
    finally:
        if BODY in state:
            state[BODY].arrived()
    return content


async def _read(request: Request, max_bytes: int, bodies: BodyBudget) -> bytes:
    state = request.scope["state"]
    chunks, size, more = [], 0, True
    while more:
        # Not request.stream(): it drops the empty message that announces a refusal.
        message = await request.receive()
        if REFUSAL in state:
            # Popped: its traceback holds this frame, whose state would hold the problem: a cycle.
            raise state.pop(REFUSAL)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        _admit(size, max_bytes, state, bodies)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _admit(size: int, max_bytes: int, state: dict[str, Any], bodies: BodyBudget) -> None:
    """Account for a body of this size. Raises BodyTooLarge, or Overloaded if the budget is spent."""
    if size > max_bytes:
        raise BodyTooLarge
    if size > SMALL_BYTES:
        (state.get(BODY) or bodies.begin(state)).grow(size)
