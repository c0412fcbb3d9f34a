"""uvicorn's HTTP protocol, with limits on everything that a client can send, delay or leave out.

One lazy timer per connection enforces its deadlines; a request that arrives in one piece does not touch it. A refused
request still passes through the application, so that it is answered as a problem, with an id, and counted.
"""

import asyncio
import math
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.errors import BodyTooLarge, HeadTooLarge, MalformedRequest, Problem, RequestTimeout
from service.http.allowed_hosts import AllowedHosts
from service.http.connection_limit import ConnectionLimit
from service.http.cycle import WHOLE, AnswerCycle, Flow, LingeringClose
from service.http.disconnect import DISCONNECT, DisconnectSignal
from service.http.head import HEAD_MAX_BYTES, HeadCheck

HEAD_LIMIT_S = 10.0
"""Time limit of a request's head, from its first byte or from the opening of the connection."""
BODY_LIMIT_S = 10.0
"""Time limit of the rest of a request."""
SEND_LIMIT_S = 10.0
"""How long a client may leave its answer unread."""
MESSAGE_MAX_BYTES = 8 * 1024 * 1024
"""Maximum bytes of one request: twice the largest body, because chunks have headers. No more is even read."""
PIPELINE_MAX = 16
"""Maximum pipelined requests behind the one under way. A client that sends more is refused."""
REFUSAL = "refusal"
"""Key of a request's state: the problem to answer it with."""

ARRIVED = "arrived"
"""Key of a request's state: set once the whole request has arrived."""

RULES = "rules"
"""Where in the application's state the ConnectionRules are, if it has any."""

# What the client must send next. Plain integers, since looking up members of an enum is slow.
_HEAD, _BODY, _NOTHING = range(3)
_LIMITS_S = (HEAD_LIMIT_S, BODY_LIMIT_S, math.inf)
_EXTENSIONS: dict[str, dict[object, object]] = {WHOLE: {}}


class ConnectionRules(NamedTuple):
    """The rules that all connections of a process share. The application yields them from its lifespan as RULES."""

    hosts: AllowedHosts
    connections: ConnectionLimit


_DEFAULT_RULES = ConnectionRules(AllowedHosts(), ConnectionLimit())


class _RequestRefused(Exception):
    """Stops the parser. The connection's `_problem` holds the reason."""


class LimitedProtocol(HttpToolsProtocol):
    """A connection that bounds its requests in time and size and accepts only strict HTTP.

    It refuses with 400 malformed-request, 403 cross-site, 408, 413, 421 or 431 and then closes the connection. Silent
    connections are closed without an answer.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        rules: ConnectionRules | None = app_state.get(RULES)
        super().__init__(config, server_state, {} if rules else app_state, _loop)
        hosts, self._limit = rules or _DEFAULT_RULES
        self._head_check = HeadCheck(hosts)
        self._last_request_number = 0
        self._keep_alive_if_read = False  # whether the request that expects 100 Continue leaves the connection open
        self._expecting = self._deadline_for = _HEAD
        self._deadline_s = math.inf
        self._bytes = 0  # of the request that is arriving
        self._problem: Problem | None = None
        self._ignore_input = False
        self._unsent_since_s: float | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._look_every_s = min(HEAD_LIMIT_S, max(self.timeout_keep_alive / 8, 0.1))
        self._disconnect_signal = DisconnectSignal()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the deadline of the first head."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        self._last_request_number = self.server_state.total_requests
        self._limit.opened(self)
        self._deadline_s = self.loop.time() + HEAD_LIMIT_S
        self._deadline_timer = self.loop.call_later(self._look_every_s, self._check_deadlines)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, signal the disconnect, and release the client's requests."""
        self._disconnect_signal.notify()
        self._limit.closed(self)
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        super().connection_lost(exc)
        # A request that never ran and this connection refer to each other, and garbage collection is rare.
        for cycle, _ in self.pipeline:
            cycle.on_response = _noop
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Parse the data, and refuse a request that exceeds a limit."""
        if self._ignore_input:
            return
        if self._expecting is _NOTHING:
            self._expecting = _HEAD  # blank lines before a request count towards it
        self._bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(self._problem or MalformedRequest())
            return
        except httptools.HttpParserUpgrade:
            # Answer the request as plain HTTP, but ignore what follows: it may be the other protocol.
            self._ignore_input = True
            self.cycle.keep_alive = False
        if self._expecting is _HEAD and self._bytes > HEAD_MAX_BYTES:
            self._refuse(HeadTooLarge())
        elif self._expecting is _BODY and self._bytes > MESSAGE_MAX_BYTES:
            self._refuse(BodyTooLarge())
        elif self._expecting is not self._deadline_for:
            self._deadline_for = self._expecting
            self._deadline_s = self.loop.time() + _LIMITS_S[self._expecting]

    def on_message_begin(self) -> None:
        """The first byte of a request arrived."""
        super().on_message_begin()
        self.scope["state"][DISCONNECT] = self._disconnect_signal
        self.scope["extensions"] = _EXTENSIONS
        self._expecting = _HEAD

    def on_headers_complete(self) -> None:
        """The head is complete: pass the request on if it is acceptable, else stop parsing."""
        self._problem = self._head_check.find_problem(self.url, self.headers, self.parser)
        if self._problem is None and len(self.pipeline) >= PIPELINE_MAX:
            self._problem = MalformedRequest(f"Send at most {PIPELINE_MAX} requests ahead of their answers.")
        if self._problem is not None:
            raise _RequestRefused  # not the problem: its traceback holds this connection, which holds the problem
        self._begin_request()
        self.headers = []  # drop trailers: they must not become headers of an accepted request
        if self.expect_100_continue:
            # An answer to the head alone must close the connection: what follows may be the body or another request.
            self._keep_alive_if_read = self.cycle.keep_alive
            self.cycle.keep_alive = False
        self._expecting = _BODY

    def on_message_complete(self) -> None:
        """The whole request has arrived."""
        super().on_message_complete()
        self.cycle.scope["state"][ARRIVED] = True
        if self.expect_100_continue and not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive_if_read
        self._last_request_number = self.server_state.total_requests
        self._bytes = 0
        self._expecting = _HEAD if self.cycle.response_complete else _NOTHING
        # What follows in the same piece gets its own deadline.
        self._deadline_for, self._deadline_s = _NOTHING, math.inf

    def on_response_complete(self) -> None:
        """The answer is written: drop the unread rest of the body, and begin the next request that waits.

        uvicorn would set a timer for an idle connection, in each answer; here the deadlines' own timer closes it.
        """
        if self.cycle.body and self.cycle.response_complete:
            self.cycle.body = bytearray()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._expecting is _NOTHING:
            self._deadline_s = self.loop.time() + self.timeout_keep_alive

    def pause_writing(self) -> None:
        """The client reads its answer too slowly."""
        super().pause_writing()
        self._unsent_since_s = self.loop.time()
        self._limit.add_unsent(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._limit.remove_unsent(self)

    @property
    def idle_since(self) -> int | None:
        """The process's request count at this connection's last request; None while one is being answered."""
        under_way = self._expecting is not _BODY and self.cycle is not None and not self.cycle.response_complete
        return None if under_way else self._last_request_number

    def abort(self) -> None:
        self.transport.abort()

    def _check_deadlines(self) -> None:
        """Close the connection or refuse its request if a deadline has passed; schedule the next check."""
        now_s = self.loop.time()
        if not (self.flow.write_paused or self.transport.is_closing()):
            self._unsent_since_s = None
        elif self._unsent_since_s is None:
            self._unsent_since_s = now_s
        elif now_s - self._unsent_since_s >= SEND_LIMIT_S:
            self.transport.abort()
            return
        if self.flow.read_paused:
            self._deadline_s = max(self._deadline_s, now_s + 1)  # reading is paused: the client is not at fault
        elif now_s >= self._deadline_s:
            if (
                self._expecting is not _BODY
                and not self._bytes
                and (self.cycle is None or self.cycle.response_complete)
            ):
                self.transport.close()
            else:
                self._refuse(RequestTimeout())
        self._deadline_timer = self.loop.call_later(
            min(max(self._deadline_s - now_s, 0.1), self._look_every_s), self._check_deadlines
        )

    def _refuse(self, problem: Problem) -> None:
        """Answer the arriving request with a problem, after those before it, then close."""
        self._ignore_input, self._deadline_s = True, math.inf
        if self._expecting is not _BODY:
            self._answer_unparsed(problem)
            return
        self.cycle.keep_alive = False
        self.cycle.transport = LingeringClose(self.transport, self.loop)
        self.cycle.scope["state"][REFUSAL] = problem
        if self.cycle.response_complete:
            self.cycle.transport.close()
        self.cycle.message_event.set()  # wakes the reader of the body, which finds the refusal

    def _begin_request(self) -> None:
        """Start the request whose head was accepted, or queue it behind the one under way, as uvicorn does.

        uvicorn would begin it with a cycle of its own class.
        """
        version = self.parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = url.path
        self.scope["query_string"] = url.query or b""
        under_way = self.cycle
        self.cycle = self._make_cycle(
            self.transport,
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
        )
        if under_way is None or under_way.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _make_cycle(
        self, transport: asyncio.Transport, *, expect_100_continue: bool = False, keep_alive: bool = False
    ) -> AnswerCycle:
        return AnswerCycle(
            scope=self.scope,
            transport=transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )

    def _answer_unparsed(self, problem: Problem) -> None:
        """Answer input that was never parsed into a request."""
        under_way = self.cycle
        self.on_message_begin()
        self.scope["method"] = self.scope["path"] = ""
        self.scope["raw_path"] = self.scope["query_string"] = b""
        self.scope["state"][REFUSAL] = problem
        self.cycle = self._make_cycle(LingeringClose(self.transport, self.loop))
        if under_way is None or under_way.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.pipeline.appendleft((self.cycle, self.app))


def _noop() -> None:
    """A callback that does nothing, for requests that are never answered."""
