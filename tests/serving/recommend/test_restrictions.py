"""What filters allow is found once, kept within bounds, and found beside the event loop where it takes long."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from model.contract.allowed import Allowed
from model.contract.attributes import gather_attributes
from model.contract.vocabulary import Vocabulary
from service.errors import Invalid, Overloaded
from service.filters.filter import Filter
from service.filters.parser import parse_filter
from service.recommend import restrictions
from service.recommend.restrictions import KEPT, Restrictions
from service.system.side_thread import SideThread

ITEMS = [f"i{number}" for number in range(5)]


@pytest.fixture
def model():
    """As much of a model as is asked: five items of the years 0 to 4."""
    vocabulary = Vocabulary(ITEMS)
    known = {item_id: {"year": year} for year, item_id in enumerate(ITEMS)}
    return SimpleNamespace(vocabulary=vocabulary, attributes=gather_attributes(vocabulary, known))


def since(year):
    """A filter of items from a year on."""
    return parse_filter({"field": "year", "gte": year})


def test_equal_filters_share_one_object(model):
    """So that a batch carries it once."""

    async def scenario():
        found = Restrictions(model)
        first = await found.find(since(3))
        assert first.count == 2
        assert await found.find(parse_filter({"field": "year", "gte": 3.0})) is first
        assert await found.find(since(2)) is not first

    asyncio.run(scenario())


def test_what_is_available_of_a_filter_is_found_once(model):
    """As long as the same items are available; it goes with the filter."""

    async def scenario():
        found = Restrictions(model)
        own = await found.find(since(3))
        some, others = (Allowed.all_but([index], item_count=len(ITEMS)) for index in (5, 1))
        both = await found.find(since(3), some)
        assert both.indexes.tolist() == [4]
        assert await found.find(since(3), some) is both
        assert (await found.find(since(3), others)).indexes.tolist() == [4, 5]
        assert (await found.find(since(3), some)).indexes.tolist() == [4]
        assert await found.find(since(3)) is own
        for number in range(KEPT):
            await found.find(since(-number))
        assert not found._available

    asyncio.run(scenario())


@pytest.mark.parametrize(("most_bytes", "kept"), [(1 << 30, KEPT), (3 * 2 * 7, 3), (0, 1)])
def test_the_least_recent_are_forgotten(model, monkeypatch, most_bytes, kept):
    """At most so many, or so many bytes at two masks of a byte an item, PAD and [mask] included; always one."""
    monkeypatch.setattr(restrictions, "KEPT_BYTES", most_bytes)

    async def scenario():
        found = Restrictions(model)
        first = [await found.find(since(number)) for number in range(kept)]
        assert [await found.find(since(number)) for number in range(kept)] == first
        await found.find(since(-1))
        assert len(found._kept) == kept
        again = [await found.find(since(number)) for number in range(kept)]
        assert not {*map(id, again)} & {id(first[0])}

    asyncio.run(scenario())


def test_what_was_asked_for_lately_stays(model, monkeypatch):
    """Its last use counts, not its first."""
    monkeypatch.setattr(restrictions, "KEPT_BYTES", 2 * 2 * 7)

    async def scenario():
        found = Restrictions(model)
        first = await found.find(since(1))
        await found.find(since(2))
        await found.find(since(1))
        await found.find(since(3))
        assert await found.find(since(1)) is first

    asyncio.run(scenario())


def test_unknown_fields_are_refused(model):
    """Those of a bundle without any, too; what is refused is not kept."""
    without: Any = SimpleNamespace(vocabulary=model.vocabulary, attributes=None)

    async def scenario():
        found = Restrictions(model)
        for _ in range(2):
            with pytest.raises(Invalid):
                await found.find(parse_filter({"field": "c4n4ry", "exists": True}))
        assert not found._kept
        with pytest.raises(Invalid):
            await Restrictions(without).find(since(1))

    asyncio.run(scenario())


@pytest.fixture
def slowly(monkeypatch):
    """Every filter is found in the thread, which waits to be let go; the names of the threads are noted."""
    going, names = threading.Event(), []
    monkeypatch.setattr(restrictions, "AT_ONCE_NS", -1)
    monkeypatch.setattr(restrictions, "_thread", SideThread("filters", limit=2))
    allow = Filter.allow

    def wait_and_allow(self, attributes):
        names.append(threading.current_thread().name)
        assert going.wait(60)
        return allow(self, attributes)

    monkeypatch.setattr(Filter, "allow", wait_and_allow)
    yield SimpleNamespace(going=going, names=names)
    restrictions._thread.close()


def test_long_work_is_done_once_beside_the_loop(model, slowly):
    """Who asks for the same meanwhile waits for it; who leaves does not take it from the others."""

    async def scenario():
        found = Restrictions(model)
        leaving, *staying = (asyncio.create_task(found.find(since(3))) for _ in range(4))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        slowly.going.set()
        allowed = await asyncio.gather(*staying)
        assert allowed[0].count == 2
        assert len({*map(id, allowed)}) == 1
        assert await found.find(since(3)) is allowed[0]
        assert len(slowly.names) == 1
        assert slowly.names[0].startswith("filters")
        assert not found._under_way

    asyncio.run(scenario())


def test_too_many_that_wait_are_refused(model, slowly):
    """The others get theirs, and then there is room again."""

    async def scenario():
        found = Restrictions(model)
        tasks = [asyncio.create_task(found.find(since(year))) for year in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await tasks[2]
        slowly.going.set()
        assert [allowed.count for allowed in await asyncio.gather(*tasks[:2])] == [5, 4]
        await asyncio.sleep(0.01)
        assert (await found.find(since(2))).count == 3

    asyncio.run(scenario())


def test_small_work_is_done_at_once(model):
    """Without a turn of the loop: a coroutine that ends at its first step."""
    with pytest.raises(StopIteration) as ended:
        Restrictions(model).find(since(4)).send(None)
    assert ended.value.value.count == 1
