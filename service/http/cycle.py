"""What lies between the application and the connection: the request-response cycle, flow control, how it is closed.

Head and body of an answer leave by one call of the system. uvicorn writes them apart, and uvloop hands each write to
the system at once.
"""

import asyncio
from collections.abc import Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

WHOLE = "nextitem.whole"
"""The extension of ASGI that cycles offer: a head that has its whole body with it, as "body"."""

_LINGER_S = 1.0
_KEPT_LINES = 256
_lines: dict[tuple[bytes, bytes], bytes] = {}
"""Header lines that were written before. Most are the same in every answer."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})
"""Headers that say where the answer ends, and whether the connection does."""


class AnswerCycle(RequestResponseCycle):
    """One request and its answer. Holds the head until the body's first piece comes."""

    _head: bytes | None = None
    _says_close = False

    async def send(self, message: Any) -> None:  # noqa: ANN401 - two forms of messages, as ASGI has them
        """Take the head of the answer, or a piece of its body. Raises RuntimeError for what is no valid answer."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started and message["type"] == "http.response.start":
            self._head = self._begin(message)
            if "body" not in message:
                return
            message = {"type": "http.response.body", "body": message["body"]}
        head, self._head = self._head, None
        if head is None:
            await super().send(message)
            return
        body = message.get("body", b"")
        whole = len(body) == self.expected_content_length and not message.get("more_body", False)
        if message["type"] == "http.response.body" and whole and self._sends_body:
            self.transport.write(head + body)
            self._complete()
        else:  # no body, chunks, or more of them
            self.transport.write(head)
            await super().send(message)

    @property
    def _sends_body(self) -> bool:
        return not self.chunked_encoding and self.scope["method"] != "HEAD"

    def _begin(self, message: Any) -> bytes:  # noqa: ANN401 - as above
        """The head of the answer, as it is to be written."""
        self.response_started, self.waiting_for_100_continue = True, False
        status: int = message["status"]
        lines = [STATUS_LINE[status]]
        headers = (*self.default_headers, *message.get("headers", ()))
        lines += [_lines.get(header) or self._write_line(*header) for header in headers]
        if not self.keep_alive and not self._says_close:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in (204, 304):
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _write_line(self, name: bytes, value: bytes) -> bytes:
        if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
            raise RuntimeError("a header holds a character that it must not")
        kind = name.lower()
        line = b"%b: %b\r\n" % (kind, value)
        if kind in _FRAMING:
            self._note_framing(kind, value)
        elif kind != b"x-request-id":  # no two answers have the same
            if len(_lines) >= _KEPT_LINES:
                _lines.clear()
            _lines[name, value] = line
        return line

    def _note_framing(self, kind: bytes, value: bytes) -> None:
        if kind == b"content-length" and self.chunked_encoding is None:
            self.expected_content_length, self.chunked_encoding = int(value), False
        elif kind == b"transfer-encoding" and value.lower() == b"chunked":
            self.expected_content_length, self.chunked_encoding = 0, True
        elif kind == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
            self.keep_alive, self._says_close = False, True

    def _complete(self) -> None:
        self.expected_content_length, self.response_complete = 0, True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class Flow(FlowControl):
    """Flow control that reads nothing more while pipelined requests wait.

    Otherwise each answer would resume reading and buffer more of the last request's body, before anything counts it.
    """

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Resume, unless requests wait: the last of them resumes when it is read or answered."""
        if not self._waiting:
            super().resume_reading()


class LingeringClose(asyncio.Transport):
    """A transport with a lingering close: closing at once with unread input would reset the connection."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the sending half now, and the connection after _LINGER_S unless the client closes first."""
        if not self._transport.is_closing():
            self._transport.write_eof()
            self._loop.call_later(_LINGER_S, self._transport.close)
