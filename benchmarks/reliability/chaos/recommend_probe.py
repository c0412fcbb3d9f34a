"""Clients of POST /recommend beside all faults, in an open loop: slow answers do not make them ask less."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.harness.open_loop import Outcome, Shot, encode_post, fire, percentile, plan
from benchmarks.reliability.chaos.clients import SHARED_USERS, USERS_PER_CLIENT
from service.api.requests import TIMEOUT_MS

RATE = 40.0
"""Requests a second; the cores are for the events and their store, too."""
LIMIT_MS = TIMEOUT_MS + 150
"""The p99 of all answers: an answer's time, and some more for the way and for a busy machine."""
LEAST_ANSWERED = 0.999
"""Share of 200 among the requests that a service was there to answer."""
CALM = "between faults"


@dataclass(frozen=True, slots=True)
class Span:
    """From the beginning of a fault to the first event acknowledged after it; seconds since the asker began."""

    kind: str
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of all requests of a kind."""

    outcomes: Sequence[Outcome]
    unserved: int
    """How many more found no service, since it had been killed: nobody could answer these."""

    @property
    def answered(self) -> float:
        """Share of 200; 1 when nobody asked."""
        return sum(each.status == 200 for each in self.outcomes) / len(self.outcomes) if self.outcomes else 1.0

    def latency_ms(self, share: float) -> float:
        """The time from when a request was due to its answer that so great a share of them did not exceed."""
        return 1e3 * percentile((each.latency_s for each in self.outcomes), share)


class Asker:
    """What was asked, and during which faults. `asking` makes one."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self.spans: list[Span] = []
        self.outcomes: list[Outcome] = []
        """Complete when the asking has ended."""

    @contextmanager
    def during(self, kind: str) -> Iterator[None]:
        """What is asked in here is asked during a fault."""
        began_s = time.perf_counter() - self._began_s
        yield
        self.spans.append(Span(kind, began_s, time.perf_counter() - self._began_s))


@asynccontextmanager
async def asking(find_url: Callable[[], str]) -> AsyncIterator[Asker]:
    """Ask whatever service `find_url` names, at the random times of independent clients, until the context ends."""
    asker, stop = Asker(), asyncio.Event()
    firing = asyncio.create_task(
        fire("127.0.0.1", lambda: urlsplit(find_url()).port or 0, _shoot(), stop=stop), name="asking"
    )
    try:
        yield asker
        stop.set()
        asker.outcomes += await firing
    finally:
        firing.cancel()


def sort_out(outcomes: Sequence[Outcome], spans: Sequence[Span], *, killed: str) -> dict[str, Asked]:
    """What became of the requests by the fault that their time touched, CALM without one.

    Those without an answer in a span of the kind `killed` are counted apart.
    """
    by_kind: dict[str, list[Outcome]] = {kind: [] for kind in (CALM, *(span.kind for span in spans))}
    unserved = 0
    for outcome in outcomes:
        until_s = outcome.at_s + outcome.latency_s
        touched = (span.kind for span in spans if span.began_s <= until_s and outcome.at_s <= span.ended_s)
        kind = next(touched, CALM)
        if kind == killed and outcome.status == 0:
            unserved += 1
        else:
            by_kind[kind].append(outcome)
    return {kind: Asked(chosen, unserved if kind == killed else 0) for kind, chosen in by_kind.items()}


def add_up(by_kind: Mapping[str, Asked]) -> Asked:
    """All of them."""
    outcomes = [outcome for asked in by_kind.values() for outcome in asked.outcomes]
    return Asked(outcomes, sum(asked.unserved for asked in by_kind.values()))


def judge(by_kind: Mapping[str, Asked]) -> bool:
    """Whether all of them were answered as promised."""
    asked = add_up(by_kind)
    return asked.answered >= LEAST_ANSWERED and asked.latency_ms(0.99) <= LIMIT_MS


def _shoot() -> Iterator[Shot]:
    """Endless shots: users of the clients who send events, each second one with items of a session."""
    users = [f"user-0-{number}" for number in range(USERS_PER_CLIENT)]
    users += [f"shared-{number}" for number in range(SHARED_USERS)]
    payloads = [
        encode_post("/recommend", json.dumps({"user_id": user, **more}).encode())
        for user in users
        for more in ({}, {"items": ["i01", "i05"]})
    ]
    return plan(payloads, rate=RATE, seconds=math.inf)
