"""The proxy that fails on request fails as it says, and so do the calls of the history port through it."""

import asyncio
import time

import pytest

from benchmarks.reliability.chaos.proxy import NO_FAULTS, Faults, Proxy
from service.errors import StoreUnavailable
from service.store.connection import connect
from service.store.event import make_event
from service.store.history import HistoryStore
from service.store.records import Outcome


@pytest.fixture
def through_proxy(store):
    """Run an async function of a proxy and of a HistoryStore that reaches its store through it."""

    def run(scenario, **options):
        async def main():
            async with Proxy(store.url) as proxy:
                history = HistoryStore(connect(proxy.url), **options)
                try:
                    return await scenario(proxy, history)
                finally:
                    await history.close()

        return asyncio.run(main())

    return run


def view(event_id):
    """An event of one user."""
    return make_event(user_id="u", item_id="i", event_type="view", event_id=event_id, now_ms=1, timestamp_ms=1)


def test_without_faults_everything_passes(through_proxy):
    """Calls large and small go through unchanged."""

    async def scenario(proxy, history):
        await history.append([view(f"e{number}") for number in range(3_000)])
        assert proxy.failed == 0
        return await history.read_many(["u"])

    [found] = through_proxy(scenario)
    assert found.version == 3_000


def test_lost_reply_comes_after_the_work(through_proxy):
    """The caller is told of a failure, the event is stored all the same, and the retry is a duplicate."""

    async def scenario(proxy, history):
        await history.append([view("first")])  # the script is loaded
        proxy.faults = Faults(lost_replies=1)
        with pytest.raises(StoreUnavailable):
            await history.append([view("e")])
        assert proxy.failed == 1
        proxy.faults = NO_FAULTS
        return (await history.append([view("e")])).outcomes

    assert through_proxy(scenario) == [Outcome.DUPLICATE]


def test_reset_comes_before_the_work(through_proxy):
    """The caller is told of a failure, and nothing is stored."""

    async def scenario(proxy, history):
        await history.append([view("first")])
        proxy.faults = Faults(resets=1)
        with pytest.raises(StoreUnavailable):
            await history.append([view("e")])
        proxy.faults = NO_FAULTS
        return (await history.append([view("e")])).outcomes

    assert through_proxy(scenario) == [Outcome.ACCEPTED]


def test_connections_closed_at_once(through_proxy):
    """The connection in use ends with the next request, new ones before the first; nothing is stored, then all is."""
    kinds: list[str] = []

    async def scenario(proxy, history):
        await history.append([view("first")])
        proxy.faults = Faults(closes=True)
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                await history.append([view("e")])
        proxy.faults = NO_FAULTS
        return (await history.append([view("e")])).outcomes

    assert through_proxy(scenario, on_error=kinds.append) == [Outcome.ACCEPTED]
    assert kinds == ["connection"] * 5


def test_delay_holds_each_reply_back(through_proxy):
    """Longer than asked for, and correct; beyond the limit of time, a failure."""

    async def scenario(proxy, history):
        proxy.faults = Faults(delay_s=0.05)
        started = time.monotonic()
        await history.read_many(["u"])
        assert time.monotonic() - started >= 0.05
        proxy.faults = Faults(delay_s=2)
        with pytest.raises(StoreUnavailable):
            await history.read_many(["u"])

    through_proxy(scenario)


def test_black_hole_ends_by_the_callers_limit(through_proxy):
    """Nothing comes back and nothing is executed; the connections that fell in are not used again."""
    kinds: list[str] = []

    async def scenario(proxy, history):
        await history.append([view("first")])
        proxy.faults = Faults(black_hole=True)
        with pytest.raises(StoreUnavailable):
            await history.append([view("e")])
        proxy.faults = NO_FAULTS
        return (await history.append([view("e")])).outcomes

    assert through_proxy(scenario, on_error=kinds.append) == [Outcome.ACCEPTED]
    assert kinds == ["timeout"]
