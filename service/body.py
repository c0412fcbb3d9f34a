"""A request's body: media type, then a byte cap while it streams, then orjson, which refuses what is not JSON."""

from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from service.errors import BodyTooLarge, Fault, Invalid, MalformedJson, RequestTimeout, UnsupportedMediaType
from service.wire import REFUSAL

EVENTS_MAX_BYTES = 256 * 1024
RECOMMEND_MAX_BYTES = 1024 * 1024
BATCH_MAX_BYTES = 4 * 1024 * 1024
BODY_PROBLEMS = (MalformedJson, RequestTimeout, Invalid, BodyTooLarge, UnsupportedMediaType)
"""What a route that reads a body may answer."""


async def read_object(request: Request, *, max_bytes: int) -> dict[str, Any]:
    """The JSON object that a request holds. Raises the BadRequest that says why there is none."""
    _check_media_type(request)
    content = await _read(request, max_bytes)
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise MalformedJson from error
    if not isinstance(document, dict):
        raise Invalid([Fault("", "object_type", "must be an object")])
    return document


def _check_media_type(request: Request) -> None:
    declared = request.headers.getlist("content-type")
    if len(declared) != 1 or "content-encoding" in request.headers:
        raise UnsupportedMediaType
    media_type, *parameters = (part.strip().lower() for part in declared[0].split(";"))
    if media_type != "application/json":
        raise UnsupportedMediaType
    if any(parameter not in ("", "charset=utf-8", 'charset="utf-8"') for parameter in parameters):
        raise UnsupportedMediaType


async def _read(request: Request, max_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise BodyTooLarge  # before reading anything
    chunks, size, more = [], 0, True
    while more:
        # Not request.stream(): it would swallow the empty message that tells of a refusal.
        message = await request.receive()
        if REFUSAL in request.scope["state"]:
            raise request.scope["state"][REFUSAL]
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > max_bytes:
            raise BodyTooLarge
        more = message.get("more_body", False)
    return b"".join(chunks)
