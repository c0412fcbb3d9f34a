"""Clients of POST /events as they should be: each sends a request again, with the same ids, until it is taken."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from benchmarks.reliability.chaos.checker import Sent

EVENTS_PER_REQUEST = 20
SHARED_USERS = 5
USERS_PER_CLIENT = 20
REPEATED = 0.05
"""Share of acknowledged requests that are sent once more."""

_LIMIT_S = 3.0
_PAUSE_S = 0.05


class Clients:
    """Several clients at once, each with users of its own and some that all share; `sent` is everything they did."""

    def __init__(self, find_url: Callable[[], str], *, count: int, seed: int = 0) -> None:
        self._find_url = find_url
        self._count = count
        self._random = random.Random(seed)  # noqa: S311 - traffic, no secrets
        self._stopping = False
        self._progress = asyncio.Event()
        self.sent: list[Sent] = []
        self.acknowledged = 0
        """Events, each once."""
        self.failed_attempts = 0
        """Requests that were answered with 503, or not at all."""
        self.unanswered = 0
        """Those without any answer."""
        self.told: Counter[str] = Counter()
        """What the receipts add up to: accepted, duplicates."""

    async def run(self) -> None:
        """Send until `stop` is called and everything that was sent is acknowledged."""
        async with httpx.AsyncClient(timeout=_LIMIT_S) as http, asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._send_on(http, number))

    async def wait_for(self, acknowledged: int) -> None:
        """Wait until so many events are acknowledged."""
        while self.acknowledged < acknowledged:
            self._progress.clear()
            await self._progress.wait()

    def stop(self) -> None:
        """Begin no further request."""
        self._stopping = True

    async def _send_on(self, http: httpx.AsyncClient, client: int) -> None:
        number = 0
        while not self._stopping:
            batch = [self._make(client, number + place) for place in range(EVENTS_PER_REQUEST)]
            number += len(batch)
            self.sent += batch
            await self._deliver(http, batch)
            if self._random.random() < REPEATED:
                await self._post(http, batch)

    def _make(self, client: int, number: int) -> Sent:
        if self._random.random() < 0.2:
            user_id = f"shared-{self._random.randrange(SHARED_USERS)}"
        else:
            user_id = f"user-{client}-{self._random.randrange(USERS_PER_CLIENT)}"
        behind_ms = self._random.choice((0, 0, 0, 0, 10, 1_000, 60_000))  # events do not come in the order of time
        timestamp_ms = int(time.time() * 1000) - behind_ms
        return Sent(user_id, f"{client}-{number}", f"i{self._random.randrange(1, 13):02d}", timestamp_ms, 0.0)

    async def _deliver(self, http: httpx.AsyncClient, batch: Sequence[Sent]) -> None:
        invoked_s = time.monotonic()
        for event in batch:
            event.invoked_s = invoked_s
        while not await self._post(http, batch):
            self.failed_attempts += 1
            await asyncio.sleep(_PAUSE_S * (1 + self._random.random()))
        completed_s = time.monotonic()
        for event in batch:
            event.completed_s, event.outcome = completed_s, "ok"
        self.acknowledged += len(batch)
        self._progress.set()

    async def _post(self, http: httpx.AsyncClient, batch: Sequence[Sent]) -> bool:
        """One attempt: whether it was acknowledged. Raises RuntimeError when the service says anything unexpected."""
        for event in batch:
            event.attempts += 1
        try:
            response = await http.post(f"{self._find_url()}/events", json={"events": list(map(_describe, batch))})
        except httpx.TransportError:
            self.unanswered += 1
            return False
        if response.status_code == 200:
            receipt = response.json()
            self.told.update({result: receipt[result] for result in ("accepted", "duplicates")})
            if receipt["accepted"] + receipt["duplicates"] == len(batch):
                return True
        if response.status_code == 503 and "retry-after" in response.headers:
            return False
        raise RuntimeError(f"POST /events answered {response.status_code}: {response.text[:500]}")


def _describe(event: Sent) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "user_id": event.user_id,
        "item_id": event.item_id,
        "timestamp": event.timestamp_ms,
    }
