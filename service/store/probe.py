"""Asks the store at most every so often, however many want to know the answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from service.errors import StoreUnavailable

T = TypeVar("T")


class ThrottledProbe(Generic[T]):
    """One question to the store, and its last answer."""

    def __init__(self, question: Callable[[], Awaitable[T]], *, every_s: float) -> None:
        """`question` is asked at most every `every_s` seconds, one at a time. It may raise StoreUnavailable."""
        self._question = question
        self._every_s = every_s
        self._lock = asyncio.Lock()
        self._began_s = float("-inf")
        self._answer: T | None = None

    async def ask(self) -> T | None:
        """The last answer; None if the store gave none."""
        now_s = time.monotonic()  # before the lock: who waits for it takes the answer that it was held for
        async with self._lock:
            if now_s - self._began_s >= self._every_s:
                self._began_s = time.monotonic()
                try:
                    self._answer = await self._question()
                except StoreUnavailable:
                    self._answer = None
            return self._answer
