"""An answer leaves in one write, byte for byte as uvicorn's own class writes it."""

import asyncio

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.http.cycle import AnswerCycle

PLAIN = [(b"content-type", b"application/json"), (b"X-Request-Id", b"7"), (b"content-length", b"5")]
CHUNKED = [(b"Transfer-Encoding", b"chunked")]


class Transport:
    """Keeps what is written."""

    def __init__(self):
        self.written, self.closed = [], False

    def write(self, data):
        self.written.append(bytes(data))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True


class Flow:
    """Never full."""

    write_paused = False


def play(kind, messages, *, method="POST", keep_alive=True):
    """What a cycle of a class writes for some messages, and how it ends: closed, complete, the callback's calls."""

    async def answer():
        transport, ended = Transport(), []
        cycle = kind(
            scope={"method": method},
            transport=transport,
            flow=Flow(),
            logger=None,
            access_logger=None,
            access_log=False,
            default_headers=[(b"date", b"Mon, 23 Nov 2026 11:00:00 GMT")],
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=lambda: ended.append(True),
        )
        error = None
        for message in messages:
            try:
                await cycle.send(message)
            except RuntimeError as raised:
                error = raised
                break
        state = transport.closed, cycle.response_started, cycle.response_complete, cycle.keep_alive, len(ended)
        return transport.written, state, error is not None

    return asyncio.run(answer())


def start(headers, status=200):
    """The head of an answer."""
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(content, *, more=False):
    """A piece of its body."""
    return {"type": "http.response.body", "body": content, "more_body": more}


ANSWERS = {
    "whole": [start(PLAIN), body(b"12345")],
    "nothing": [start([(b"content-length", b"0")]), body(b"")],
    "in pieces": [start(PLAIN), body(b"123", more=True), body(b"45")],
    "empty first piece": [start(PLAIN), body(b"", more=True), body(b"12345")],
    "chunked": [start(CHUNKED), body(b"123", more=True), body(b"45")],
    "of no length": [start([]), body(b"12345")],
    "of no length, empty": [start([]), body(b"")],
    "not modified": [start([(b"etag", b'"x"')], 304), body(b"")],
    "no content": [start([], 204), body(b"")],
    "closes": [start([*PLAIN, (b"Connection", b"keep-alive, Close")]), body(b"12345")],
    "closes by length": [start([(b"connection", b"close"), *PLAIN]), body(b"12345")],
    "too long": [start(PLAIN), body(b"123456")],
    "too short": [start(PLAIN), body(b"1234")],
    "body first": [body(b"12345")],
    "two heads": [start(PLAIN), start(PLAIN)],
    "after its end": [start(PLAIN), body(b"12345"), body(b"6")],
    "split header": [start([(b"x", b"1\r\nset-cookie: a")]), body(b"")],
    "split name": [start([(b"x\r\n", b"1")]), body(b"")],
}


@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("messages", ANSWERS.values(), ids=ANSWERS)
def test_writes_what_uvicorn_writes(messages, keep_alive, method):
    """The same bytes, the same end, and an error where uvicorn raises one; twice, since header lines are kept."""
    expected, state, failed = play(RequestResponseCycle, messages, method=method, keep_alive=keep_alive)
    for _ in range(2):
        written, own_state, own_failed = play(AnswerCycle, messages, method=method, keep_alive=keep_alive)
        assert (own_state, own_failed) == (state, failed)
        if not failed:  # of an answer that fails nothing need be written
            assert b"".join(written) == b"".join(expected)


def test_one_write():
    """The whole answer leaves at once."""
    assert len(play(AnswerCycle, ANSWERS["whole"])[0]) == 1
    assert len(play(RequestResponseCycle, ANSWERS["whole"])[0]) == 2


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_a_head_with_its_whole_body(method):
    """An answer that comes as one message leaves as one that came as two."""
    together = [{**start(PLAIN), "body": b"12345"}]
    assert play(AnswerCycle, together, method=method) == play(AnswerCycle, ANSWERS["whole"], method=method)


def test_kept_lines_are_bounded():
    """Ever new header lines take no ever growing memory."""
    from service.http import cycle  # noqa: PLC0415 - the module's own store

    for number in range(2 * cycle._KEPT_LINES):
        play(AnswerCycle, [start([(b"etag", b"%d" % number), (b"content-length", b"0")]), body(b"")])
    assert len(cycle._lines) <= cycle._KEPT_LINES
