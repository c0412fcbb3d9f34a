"""Work for requests beside the event loop: in one thread of its own, and for a bounded number of them at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from service.errors import Overloaded

T = TypeVar("T")


class SideThread:
    """Runs one call after the other in a thread, for at most `limit` requests at a time."""

    def __init__(self, name: str, *, limit: int) -> None:
        self._limit = limit
        self._under_way = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    def close(self) -> None:
        """Take no more calls, and drop those that have not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result, or its exception. A call goes on though its client leaves. Raises Overloaded."""
        if self._under_way >= self._limit:
            raise Overloaded
        loop = asyncio.get_running_loop()
        self._under_way += 1
        future = self._thread.submit(call)
        future.add_done_callback(lambda done: self._note_end(loop, done))
        return await asyncio.wrap_future(future)

    def _note_end(self, loop: asyncio.AbstractEventLoop, _done: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._free)

    def _free(self) -> None:
        self._under_way -= 1
