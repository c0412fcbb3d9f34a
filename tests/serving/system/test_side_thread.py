"""Work in a thread beside the loop: bounded, and ended."""

import asyncio
import threading

import pytest

from service.errors import Overloaded
from service.system.side_thread import SideThread


def test_work_is_bounded():
    """Requests beyond the limit are refused at once; those whose client leaves still count until they are done."""
    gate = threading.Event()
    work = SideThread("test", limit=2)

    async def crowd():
        first, second = (asyncio.ensure_future(work.run(gate.wait)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await work.run(gate.wait)
        gate.set()
        assert await second
        await asyncio.sleep(0.1)  # what has ended is noted by the loop
        assert await work.run(lambda: 7) == 7

    asyncio.run(crowd())
    work.close()


def test_what_has_not_begun_when_it_closes_is_dropped():
    """The call under way ends, the next one is cancelled."""
    gate, begun = threading.Event(), threading.Event()
    work = SideThread("test", limit=2)

    def begin_and_wait():
        begun.set()
        return gate.wait()

    async def close():
        first = asyncio.ensure_future(work.run(begin_and_wait))
        second = asyncio.ensure_future(work.run(gate.wait))
        await asyncio.to_thread(begun.wait)
        work.close()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        assert await first

    asyncio.run(close())
