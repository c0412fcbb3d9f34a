"""What filters allow is found once, kept within bounds, and found beside the event loop where it takes long."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.contract.allowed import Allowed
from model.contract.attributes import gather_attributes
from model.contract.vocabulary import Vocabulary
from service.catalogue.live import CatalogueView
from service.catalogue.overlay import Overlay
from service.errors import Invalid, Overloaded
from service.filters.filter import Filter
from service.filters.parser import parse_filter
from service.ranking import restrictions
from service.ranking.restrictions import KEPT, Restrictions
from service.store.catalogue import LoggedChange
from service.system.side_thread import SideThread
from tests.serving.filters.plain import matches

ITEMS = [f"i{number}" for number in range(5)]


def publish(known) -> Any:
    """As much of the model of a bundle as is asked, with what is known of each item."""
    vocabulary = Vocabulary(ITEMS)
    attributes = gather_attributes(vocabulary, known)
    return SimpleNamespace(
        vocabulary=vocabulary, attributes=attributes, find_metadata=lambda item_id: orjson.dumps(known[item_id])
    )


@pytest.fixture
def model():
    """Five items of the years 0 to 4."""
    return publish({item_id: {"year": year} for year, item_id in enumerate(ITEMS)})


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
    without: Any = SimpleNamespace(vocabulary=model.vocabulary, attributes=None, find_metadata=model.find_metadata)

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


def say(overlay, item_id, record):
    """Make the next change of an overlay."""
    version = overlay.version + 1
    overlay.apply(LoggedChange(b"%d-0" % version, item_id, record))


async def ask(found, overlay, wanted):
    """What is found once the overlay is known."""
    view = await found.follow(CatalogueView(overlay.version, False, overlay), within_s=60)
    assert (view.version, view.behind) == (overlay.version, False)
    return await found.find(wanted)


cells = {"genre": st.sampled_from(["Drama", "War", ["Drama", "War"], [], True]), "year": st.integers(0, 5) | st.none()}
described = st.fixed_dictionaries({"genre": cells["genre"]}, optional={"year": cells["year"]})
records = described.map(lambda known: b"1" + orjson.dumps(known)) | st.sampled_from([b"", b"0", b"1"])
FILTERS: list[dict[str, Any]] = [
    {"field": "genre", "in": ["Drama", True]},
    {"not": {"field": "genre", "in": ["War"]}},
    {"field": "year", "gte": 2, "lt": 5},
    {
        "all": [
            {"field": "genre", "exists": True},
            {"any": [{"field": "year", "in": [1, 3]}, {"field": "year", "gt": 3}]},
        ]
    },
    {"field": "year", "exists": False},
]


@settings(max_examples=150, deadline=None)
@given(
    base=st.lists(described, min_size=len(ITEMS), max_size=len(ITEMS)),
    steps=st.lists(
        st.tuples(st.lists(st.tuples(st.sampled_from([*ITEMS, "new"]), records), max_size=4), st.sampled_from(FILTERS)),
        min_size=1,
        max_size=6,
    ),
    beside=st.booleans(),
)
def test_changed_metadata_filter_as_if_published_anew(base, steps, beside):
    """Each filter at each step: what the bundle's columns would say, had it been published with all changes."""
    base[0] |= {"genre": ["Drama"], "year": 1}  # so that there are both columns
    known = dict(zip(ITEMS, base, strict=True))

    async def scenario():
        found, overlay = Restrictions(publish(known)), Overlay()
        for changes, document in steps:
            for item_id, record in changes:
                say(overlay, item_id, record)
            merged = {
                item_id: orjson.loads(overlay.find_metadata(item_id, orjson.dumps(known[item_id])) or b"{}")
                for item_id in ITEMS
            }
            wanted = parse_filter(document)
            allowed = await ask(found, overlay, wanted)
            expected = [matches(document, metadata) for metadata in merged.values()]
            assert allowed.mask[1:6].tolist() == expected
            anew = publish(merged).attributes
            if wanted.fields <= {*anew.columns}:
                assert allowed.mask.tolist() == wanted.allow(anew).mask.tolist()
            assert await ask(found, overlay, wanted) is allowed

    with pytest.MonkeyPatch.context() as patch:
        if beside:
            patch.setattr(restrictions, "AT_ONCE_NS", -1)
        asyncio.run(scenario())


def test_a_filter_is_told_of_changed_items_alone(model, monkeypatch):
    """The columns of the bundle are looked at once, and then no item but those that changed."""
    looked = []
    allow_anew = Filter.allow_anew

    def note(self, before, changed):
        looked.append(changed.indexes.tolist())
        return allow_anew(self, before, changed)

    monkeypatch.setattr(Filter, "allow_anew", note)

    async def scenario():
        found, overlay = Restrictions(model), Overlay()
        assert (await ask(found, overlay, since(3))).indexes.tolist() == [4, 5]
        monkeypatch.setattr(Filter, "allow", None)
        say(overlay, "i0", b'1{"year":9}')
        assert (await ask(found, overlay, since(3))).indexes.tolist() == [1, 4, 5]
        say(overlay, "i4", b'1{"year":0}')
        say(overlay, "i1", b'0{"year":9}')
        assert (await ask(found, overlay, since(3))).indexes.tolist() == [1, 2, 4]
        say(overlay, "i0", b"0")
        assert (await ask(found, overlay, since(3))).indexes.tolist() == [2, 4]

    asyncio.run(scenario())
    assert [sorted(indexes) for indexes in looked] == [[1], [2, 5], [1]]


def test_what_changes_is_available_or_not(model):
    """Both count, and what was kept of an earlier state does not."""

    async def scenario():
        found, overlay = Restrictions(model), Overlay()
        sold_out = Allowed.all_but([5], item_count=len(ITEMS))
        await ask(found, overlay, since(3))
        assert (await found.find(since(3), sold_out)).indexes.tolist() == [4]
        say(overlay, "i0", b'1{"year":9}')
        await ask(found, overlay, since(3))
        both = await found.find(since(3), sold_out)
        assert both.indexes.tolist() == [1, 4]
        assert await found.find(since(3), sold_out) is both

    asyncio.run(scenario())


def test_fields_that_the_catalogue_alone_has_are_unknown(model):
    """Whether a request is valid does not change with an item: the next bundle brings the field."""

    async def scenario():
        found, overlay = Restrictions(model), Overlay()
        say(overlay, "i0", b'1{"year":3,"colour":"red"}')
        with pytest.raises(Invalid):
            await ask(found, overlay, parse_filter({"field": "colour", "in": ["red"]}))

    asyncio.run(scenario())


def test_values_of_another_kind_are_there_and_match_nothing(model):
    """A string where the bundle has numbers."""

    async def scenario():
        found, overlay = Restrictions(model), Overlay()
        say(overlay, "i4", b'1{"year":"9"}')
        assert (await ask(found, overlay, since(3))).indexes.tolist() == [4]
        there = parse_filter({"field": "year", "exists": True})
        assert (await ask(found, overlay, there)).count == len(ITEMS)
        with pytest.raises(Invalid):
            await ask(found, overlay, parse_filter({"field": "year", "in": ["9"]}))

    asyncio.run(scenario())
