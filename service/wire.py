"""HTTP as it arrives: uvicorn's protocol, with a limit on everything that a client can send or leave out.

One lazy timer a connection looks after its deadlines: a request that comes in one piece moves none. What is refused
here still passes through the application, which answers it like everything else: as a problem, with an id, counted.
"""

import asyncio
import math
import re
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.errors import BodyTooLarge, HeadTooLarge, MalformedRequest, Problem, RequestTimeout

HEAD_LIMIT_S = 10.0
"""How long a request's head may take, from its first byte or from the opening of the connection."""
BODY_LIMIT_S = 10.0
"""How long the rest of a request may take."""
TAKING_LIMIT_S = 10.0
"""How long a client may leave its answer untaken."""
HEAD_MAX_BYTES = 32 * 1024
HEADERS_MAX = 100
MESSAGE_MAX_BYTES = 8 * 1024 * 1024
"""One request on the wire: twice the largest body, since chunks have heads. What is more is not even thrown away."""
REFUSAL = "refusal"
"""Where in a request's state the problem stands that it is to be answered with."""

DEPARTURE = "departure"
"""Where in a request's state the Departure of its client stands."""

_LINGER_S = 1.0
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]{1,255}")
_ABSOLUTE = re.compile(rb"https?://[^/?#@]+(?=/)", re.IGNORECASE)
"""What proxies send before a path."""
_NO_TARGET = re.compile(rb"[^!-~]|#")
"""A raw byte that should be encoded, or a fragment, which is nobody's business but the client's."""


# What the client is to send next. Plain numbers: members of an enum take longer to find than to compare.
_HEAD, _BODY, _NOTHING = range(3)
_LIMITS_S = (HEAD_LIMIT_S, BODY_LIMIT_S, math.inf)


class Departure:
    """Whether the client of a connection has closed it, and who is to be told when it does."""

    __slots__ = ("happened", "leave")

    def __init__(self) -> None:
        self.happened = False
        self.leave: Callable[[], object] | None = None

    def happen(self) -> None:
        """The client is gone."""
        self.happened = True
        if self.leave is not None:
            self.leave()


class LimitedProtocol(HttpToolsProtocol):
    """A connection whose requests are bounded in time and size and must be HTTP to the letter.

    Refuses with 400 malformed-request, 408, 413 or 431 and closes then. Silent connections are closed without a word.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._owed = self._timed = _HEAD
        self._due_s = math.inf
        self._bytes = 0  # of the request that is arriving
        self._fault: Problem | None = None
        self._host: bytes | None = None  # the last one that was valid
        self._deaf = False
        self._untaken_since_s: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._departure = Departure()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._due_s = self.loop.time() + HEAD_LIMIT_S
        self._watch = self.loop.call_later(HEAD_LIMIT_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching, and tell who works for the client."""
        self._departure.happen()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, and refuse the request that it breaks a limit of."""
        self._unset_keepalive_if_required()
        if self._deaf:
            return
        if self._owed is _NOTHING:
            self._owed = _HEAD  # blank lines before a request are a part of it
        self._bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(self._fault or MalformedRequest())
            return
        except httptools.HttpParserUpgrade:
            # Answered as if nobody had asked for another protocol; what follows might be one.
            self._deaf = True
            self.cycle.keep_alive = False
        if self._owed is _HEAD and self._bytes > HEAD_MAX_BYTES:
            self._refuse(HeadTooLarge())
        elif self._owed is _BODY and self._bytes > MESSAGE_MAX_BYTES:
            self._refuse(BodyTooLarge())
        elif self._owed is not self._timed:
            self._timed = self._owed
            self._due_s = self.loop.time() + _LIMITS_S[self._owed]

    def on_message_begin(self) -> None:
        """A request's first byte."""
        super().on_message_begin()
        self.scope["state"][DEPARTURE] = self._departure
        self._owed = _HEAD

    def on_headers_complete(self) -> None:
        """The head is here: hand it on if it keeps the rules. Whatever is raised here is a parser's error."""
        self._fault = self._examine_head()
        if self._fault is not None:
            raise self._fault
        super().on_headers_complete()
        self.headers = []  # trailers go nowhere: they must not become headers of a request that was let in
        self._owed = _BODY

    def on_message_complete(self) -> None:
        """All of the request is here."""
        super().on_message_complete()
        self._bytes = 0
        self._owed = _HEAD if self.cycle.response_complete else _NOTHING

    def pause_writing(self) -> None:
        """The client does not take its answer as fast as it is given."""
        super().pause_writing()
        self._untaken_since_s = self.loop.time()

    def _examine_head(self) -> Problem | None:
        version = self.parser.get_http_version()
        hosts, size = 0, len(self.url)
        for name, value in self.headers:
            size += len(name) + len(value) + 4
            if name == b"host":
                hosts += 1
                if value != self._host and _HOST.fullmatch(value) is None:
                    return MalformedRequest("The Host header is not valid.")
                self._host = value
            elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version != "1.1"):
                return MalformedRequest("The only Transfer-Encoding is chunked, in HTTP/1.1.")
        if size > HEAD_MAX_BYTES or len(self.headers) > HEADERS_MAX:
            return HeadTooLarge()
        if hosts != 1:
            return MalformedRequest("Send one Host header.")
        is_path = self.url.startswith(b"/") or _ABSOLUTE.match(self.url) is not None
        if version not in ("1.1", "1.0") or not is_path or _NO_TARGET.search(self.url):
            return MalformedRequest()
        return None

    def _look(self) -> None:
        """Close what is overdue, and come back when the next deadline may have passed."""
        now_s = self.loop.time()
        if not (self.flow.write_paused or self.transport.is_closing()):
            self._untaken_since_s = None
        elif self._untaken_since_s is None:
            self._untaken_since_s = now_s
        elif now_s - self._untaken_since_s >= TAKING_LIMIT_S:
            self.transport.abort()
            return
        if self.flow.read_paused:
            self._due_s = max(self._due_s, now_s + 1)  # it is us who keep the client waiting
        elif now_s >= self._due_s:
            if self._owed is _HEAD and not self._bytes:
                self.transport.close()
            else:
                self._refuse(RequestTimeout())
        self._watch = self.loop.call_later(min(max(self._due_s - now_s, 0.1), HEAD_LIMIT_S), self._look)

    def _refuse(self, problem: Problem) -> None:
        """Answer the request that is arriving with a problem, after those before it, and close."""
        self._deaf, self._due_s = True, math.inf
        if self._owed is not _BODY:
            self._answer_anew(problem)
            return
        self.cycle.keep_alive = False
        self.cycle.transport = _Farewell(self.transport, self.loop)
        self.cycle.scope["state"][REFUSAL] = problem
        if self.cycle.response_complete:
            self.cycle.transport.close()
        self.cycle.message_event.set()  # whoever reads the body finds the refusal

    def _answer_anew(self, problem: Problem) -> None:
        """Answer what never became a request."""
        under_way = self.cycle
        self.on_message_begin()
        self.scope["method"] = self.scope["path"] = ""
        self.scope["raw_path"] = self.scope["query_string"] = b""
        self.scope["state"][REFUSAL] = problem
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=_Farewell(self.transport, self.loop),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        if under_way is None or under_way.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.pipeline.appendleft((self.cycle, self.app))


class _Farewell(asyncio.Transport):
    """A transport whose close leaves the client a moment to read: closed at once, unread input would reset it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """As the transport."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """As the transport."""
        return self._transport.is_closing()

    def close(self) -> None:
        """End our half now, and the rest a moment later unless the client does."""
        if not self._transport.is_closing():
            self._transport.write_eof()
            self._loop.call_later(_LINGER_S, self._transport.close)
