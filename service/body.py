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
    content = await _read(request, max_bytes, _examine_head(request))
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise MalformedJson from error
    if not isinstance(document, dict):
        raise Invalid([Fault("", "object_type", "must be an object")])
    return document


def _examine_head(request: Request) -> bytes:
    """The length that the head declares, if it does. Raises UnsupportedMediaType for all but plain JSON."""
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


async def _read(request: Request, max_bytes: int, length: bytes) -> bytes:
    if length.isdigit() and int(length[:20]) > max_bytes:
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
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
