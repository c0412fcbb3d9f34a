"""The pipe to the store: order, errors, and connections that end or fall silent."""

import asyncio
import contextlib
import resource
import socket
import struct
from pathlib import Path

import pytest
import uvloop
from redis.asyncio import Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from service.embedded.loss_detection import CLIENT_NAME
from service.store import multiplexer
from service.store.connection import connect
from service.store.multiplexer import Multiplexer


def converse(url, scenario):
    """Run an async function of a pipe to a server, and close all of it."""

    async def main():
        client = connect(url)
        asked = Multiplexer(client.connection_pool)
        try:
            return await scenario(asked)
        finally:
            await asked.close()
            await client.aclose()

    return asyncio.run(main())


@pytest.fixture
def answer_by(tmp_path):
    """Run a scenario against a server that treats the n-th connection by the n-th function given."""

    def play(scenario, *treatments):
        path = tmp_path / "s"
        turns, ended = iter(treatments), asyncio.Semaphore(0)

        async def treat(reader, writer):
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await next(turns)(reader, writer)
            writer.close()
            ended.release()

        async def main(asked):
            async with await asyncio.start_unix_server(treat, path):
                answer = await scenario(asked)
                await asked.close()
                for _ in treatments:
                    await ended.acquire()
                return answer

        return converse(f"unix://{path}", main)

    return play


async def begin(asked, command):
    """A task that waits for the reply to a command which was sent."""
    waiting = asyncio.create_task(asked.ask([command]))
    while not (asked._current and asked._current._pending):  # noqa: ASYNC110 - there is nothing to wait for
        await asyncio.sleep(0)
    return waiting


async def silence(reader, _writer):
    """Take everything and answer nothing."""
    await reader.read()


async def echo_count(reader, writer):
    """Answer each ECHO with its number on this connection, a piece at a time."""
    number = 0
    while await reader.readuntil(b"ECHO\r\n"):
        reply = b"$%d\r\n%d\r\n" % (len(str(number)), number)
        for piece in (reply[:3], reply[3:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        number += 1


def test_each_caller_gets_the_replies_to_its_own_commands(store_url):
    """A hundred callers at once over one connection, errors and empty questions among them."""

    async def scenario(asked):
        async def ask(number):
            commands = [("ECHO", f"{number}-{part}") for part in range(number % 4)]
            return await asked.ask([*commands, ("NONSENSE",)] if number % 5 == 0 else commands)

        answers = await asyncio.gather(*(ask(number) for number in range(100)))
        [clients] = await asked.ask([("CLIENT", "LIST")])
        return answers, sum(CLIENT_NAME.encode() not in client for client in clients.splitlines())

    answers, connections = converse(store_url, scenario)
    for number, replies in enumerate(answers):
        if number % 5 == 0:
            error = replies.pop()
            assert isinstance(error, ResponseError)
            assert str(error).startswith("ERR")
        assert replies == [f"{number}-{part}".encode() for part in range(number % 4)]
    assert connections == 1


def test_a_caller_that_leaves_takes_nobodys_reply(answer_by):
    """Replies to who does not wait any more are read and thrown away, also when they come in pieces."""

    async def scenario(asked):
        first = await begin(asked, ("ECHO",))
        callers = [first, *(asyncio.create_task(asked.ask([("ECHO",)])) for _ in range(3))]
        await asyncio.sleep(0)
        callers[1].cancel()
        return await asyncio.gather(*callers, return_exceptions=True)

    first, second, third, fourth = answer_by(scenario, echo_count)
    assert isinstance(second, asyncio.CancelledError)
    assert (first, third, fourth) == ([b"0"], [b"2"], [b"3"])


def test_a_silent_connection_gets_no_more_commands(answer_by, monkeypatch):
    """Once it owes a reply for too long the next caller is answered by another connection, and it is closed at last."""
    monkeypatch.setattr(multiplexer, "OVERDUE_S", 0.0)
    monkeypatch.setattr(multiplexer, "RETIRED_S", 0.05)

    async def scenario(asked):
        waiting = await begin(asked, ("ECHO",))
        answer = await asked.ask([("ECHO",)])
        with pytest.raises(RedisConnectionError):
            await waiting
        return answer

    assert answer_by(scenario, silence, echo_count) == [b"0"]


def test_what_is_no_protocol_ends_the_connection(answer_by):
    """Who waits is told so, and the next caller has another connection."""

    async def babble(reader, writer):
        await reader.readuntil(b"ECHO\r\n")
        writer.write(b"nonsense\r\n")
        await reader.read()

    async def scenario(asked):
        with pytest.raises(RedisConnectionError):
            await asked.ask([("ECHO",)])
        return await asked.ask([("ECHO",)])

    assert answer_by(scenario, babble, echo_count) == [b"0"]


def test_nobody_waits_for_a_pipe_that_is_closed(answer_by):
    """Closing tells who waits."""

    async def scenario(asked):
        waiting = await begin(asked, ("ECHO",))
        await asked.close()
        with pytest.raises(RedisConnectionError):
            await waiting

    answer_by(scenario, silence)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("abruptly", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("said", [b"", b"-ERR max number of clients reached\r\n"], ids=["silent", "full"])
def test_a_server_that_closes_every_connection_at_once(monkeypatch, new_loop, abruptly, said):
    """As one without room for another client: callers are told so at once, also of an end before the pipe took over."""
    connect_first = Connection.connect

    async def connect_late(connection):
        await connect_first(connection)
        await asyncio.sleep(0.02)  # in which the connection ends

    async def main():
        async def treat(_reader, writer):
            writer.write(said)
            await writer.drain()
            if abruptly:
                linger = struct.pack("ii", 1, 0)  # then what closes it resets it
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

        async with await asyncio.start_server(treat, "127.0.0.1", 0) as server:
            client = connect(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            asked = Multiplexer(client.connection_pool)
            for late in (False, True):
                if late:
                    monkeypatch.setattr(Connection, "connect", connect_late)
                for _ in range(5):
                    async with asyncio.timeout(5):
                        answers = await asyncio.gather(
                            *(asked.ask([("PING",)]) for _ in range(3)), return_exceptions=True
                        )
                    for answer in answers:  # the error in place of a reply, or the end of the connection
                        assert isinstance(answer[0] if isinstance(answer, list) else answer, RedisError | OSError)
            async with asyncio.timeout(5):
                await asked.close()
            await client.aclose()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    "said",
    [
        [b"*2147483647\r\n"],
        [b"*214748", b"3647\r\n$1\r\n"],
        [b"*1\r", b"\n*100000\r\n"],
        [b"$-1\r\n*2147483647\r\n"],
        [b"%2147483647\r\n"],
        [b"$2147483647\r\n", *[bytes(2**20)] * 20],
        [b"$0\r\n\r\n+more\r\n"],
        [b"!"],
    ],
    ids=[
        "array",
        "array in pieces",
        "nested array",
        "array after nil",
        "map",
        "string",
        "more than was asked for",
        "no type",
    ],
)
def test_replies_without_end_end_the_connection(answer_by, said):
    """Nothing is made room for, and nobody gets what is left over as the reply to a command of theirs."""
    ended = []

    async def flood(reader, writer):
        await reader.readuntil(b"ECHO\r\n")
        for piece in said:
            writer.write(piece)
            await writer.drain()
        ended.append(await reader.read())

    async def scenario(asked):
        async with asyncio.timeout(5):
            answers = await asyncio.gather(asked.ask([("ECHO",)]), asked.ask([("NEVER",)]), return_exceptions=True)
            first, second = answers
            assert isinstance(first, RedisConnectionError) or first in ([b""], [None])
            assert isinstance(second, RedisConnectionError) or second == [b"more"]
            return await asked.ask([("ECHO",)])

    before_bytes = read_resident_bytes()
    if said == [b"$0\r\n\r\n+more\r\n"]:  # two commands under way: the second is answered, a third reply is too much
        said = [*said, b"+unasked\r\n"]
    assert answer_by(scenario, flood, echo_count) == [b"0"]
    assert read_resident_bytes() - before_bytes < 256 * 2**20


def read_resident_bytes():
    """What this process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_an_id_that_looks_like_an_array_is_none(store_url):
    """Stars and digits inside of values, at the end of a piece or not, are content."""
    values = [b"*2147483647", b"x" * 70_000 + b" *999999999", b"\r*1234567", b"*" * 300_000, b">" + b"1" * 300_000]

    async def scenario(asked):
        return await asked.ask([("ECHO", value) for value in values])

    assert converse(store_url, scenario) == values


def test_a_string_that_looks_like_an_array_may_come_in_pieces(answer_by):
    """Wherever it is cut."""
    value = b"*2147483647*214748"
    reply = b"$%d\r\n%s\r\n" % (len(value), value)

    async def scenario(asked):
        return [await asked.ask([("ECHO",)]) for _ in range(1, len(reply))]

    async def cut(reader, writer):
        for place in range(1, len(reply)):
            await reader.readuntil(b"ECHO\r\n")
            for piece in (reply[:place], reply[place:]):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.002)

    assert answer_by(scenario, cut) == [[value]] * (len(reply) - 1)
