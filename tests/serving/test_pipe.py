"""The pipe to the store: order, errors, and connections that end or fall silent."""

import asyncio
import contextlib

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from service import pipe
from service.connection import connect
from service.pipe import Pipe


def converse(url, scenario):
    """Run an async function of a pipe to a server, and close all of it."""

    async def main():
        client = connect(url)
        asked = Pipe(client.connection_pool)
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
    while not (asked._line and asked._line._owed):  # noqa: ASYNC110 - there is nothing to wait for
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
        return answers, clients.count(b"\n")

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
    monkeypatch.setattr(pipe, "OVERDUE_S", 0.0)
    monkeypatch.setattr(pipe, "RETIRED_S", 0.05)

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
