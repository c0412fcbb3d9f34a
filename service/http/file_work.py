"""Work on files for requests: in one thread of its own, since a disk may be slow, and a bounded number at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from service.errors import Overloaded

T = TypeVar("T")


class FileWork:
    """Runs one call after the other in a thread, for at most `limit` requests at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._under_way = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="files")

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
