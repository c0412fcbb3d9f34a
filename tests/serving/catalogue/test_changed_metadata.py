"""What filters read of a worker's overlay: all that it holds, or the view that they are given says it is behind."""

import asyncio
import gc

import orjson
import pytest

from model.contract.vocabulary import Vocabulary
from service.catalogue import changed_metadata
from service.catalogue.changed_metadata import ChangedMetadata
from service.catalogue.live import CatalogueView
from service.catalogue.overlay import Overlay
from service.filters.changed_columns import Seen
from service.store.catalogue import LoggedChange

ITEMS = [f"i{number:02d}" for number in range(40)]
PATIENT_S = 60.0


def read_bundle(item_id):
    """What the bundle says of an item: its number as its price."""
    return b'{"price":%d}' % int(item_id[1:])


def follow_prices():
    """Whoever follows the prices of the bundle's items."""
    return ChangedMetadata(Vocabulary(ITEMS), {"price": True}, read_bundle)


def say(overlay, item_id, record):
    """Make the next change of an overlay."""
    version = overlay.version + 1
    overlay.apply(LoggedChange(b"%d-0" % version, item_id, record))


def price(amount, available=b"1"):
    """A record of an item at a price."""
    return available + orjson.dumps({"price": amount})


def see(overlay):
    """An answer's view."""
    return CatalogueView(overlay.version, False, overlay)


def read_prices(changed):
    """The prices of changed items that were read, by index."""
    found = changed.columns.since(Seen(), ["price"])
    prices = found.columns["price"]
    return {int(found.indexes[row - 1]): amount for row, amount in zip(prices.rows, prices.values, strict=True)}


async def follow(changed, overlay, within_s=PATIENT_S):
    """The version that a filter sees, and whether it is behind."""
    seen = await changed.follow(see(overlay), within_s=within_s)
    assert seen.overlay is overlay
    return seen.version, seen.behind


def test_each_change_is_read_once():
    """New metadata, others, and those of the bundle again; availability alone and unknown items are none."""
    changed, overlay = follow_prices(), Overlay()

    async def scenario():
        assert await follow(changed, overlay) == (0, False)
        for record in (price(7), price(8), price(8, b"0"), price(8)):
            say(overlay, "i01", record)
            assert await follow(changed, overlay) == (overlay.version, False)
        assert changed.columns.end.rows == 2
        assert read_prices(changed) == {2: 8}
        for item_id, record in (("i02", b"0"), ("new", price(1)), ("i03", b"d")):
            say(overlay, item_id, record)
        assert await follow(changed, overlay) == (7, False)
        assert changed.columns.end.rows == 2
        say(overlay, "i01", b"")
        assert await follow(changed, overlay) == (8, False)
        assert read_prices(changed) == {2: 1}

    asyncio.run(scenario())


def test_nothing_is_held_before_the_first_filter():
    """No row and no list of what changed."""
    changed, overlay = follow_prices(), Overlay()
    say(overlay, "i01", price(7))
    assert (changed.columns.end, len(changed._pending), len(overlay.watchers)) == (Seen(), 0, 0)


def test_a_model_that_goes_is_told_no_more():
    """The overlay does not hold it."""
    overlay = Overlay()
    changed = follow_prices()
    asyncio.run(follow(changed, overlay))
    assert len(overlay.watchers) == 1
    del changed
    gc.collect()
    assert len(overlay.watchers) == 0


def test_a_catalogue_that_is_loaded_anew_is_read_anew():
    """What the one before had changed, and this one has not, is the bundle's again."""
    changed, before, after = follow_prices(), Overlay(), Overlay(b"9-0")
    say(before, "i01", price(7))
    say(before, "i02", price(8))
    after.add({"i02": price(9), "i03": price(10), "i04": b"0"})

    async def scenario():
        assert await follow(changed, before) == (2, False)
        assert await follow(changed, after) == (9, False)
        assert read_prices(changed) == {2: 1, 3: 9, 4: 10}

    asyncio.run(scenario())


async def read_to_the_end(changed, overlay):
    """What a filter sees when all is read."""
    while (seen := await follow(changed, overlay, within_s=0))[1]:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0)
    return seen


@pytest.fixture
def by_and_by(monkeypatch):
    """Everything is read in the background, two items at a time."""
    monkeypatch.setattr(changed_metadata, "AT_ONCE", 0)
    monkeypatch.setattr(changed_metadata, "STEP", 2)


@pytest.mark.usefixtures("by_and_by")
def test_who_cannot_wait_is_told_that_it_is_behind():
    """The one who begins waits for as long as it may, the others not at all; when all is read, nobody is behind."""
    changed, overlay = follow_prices(), Overlay()

    async def scenario():
        say(overlay, "i00", price(1))
        assert await follow(changed, overlay) == (1, False)  # it waits
        for item_id in ITEMS:
            say(overlay, item_id, price(5))
        assert await follow(changed, overlay, within_s=0) == (1, True)
        assert await follow(changed, overlay) == (1, True)
        say(overlay, "i39", price(6))  # while the others are read
        assert await read_to_the_end(changed, overlay) == (42, False)
        assert read_prices(changed) == {index: 6 if index == 40 else 5 for index in range(1, 41)}

    asyncio.run(scenario())


@pytest.mark.usefixtures("by_and_by")
def test_another_overlay_while_one_is_read():
    """The reader goes on with the new one."""
    changed, before, after = follow_prices(), Overlay(), Overlay(b"99-0")
    for item_id in ITEMS:
        say(before, item_id, price(5))
    after.add({"i07": price(70)})

    async def scenario():
        assert await follow(changed, before, within_s=0) == (0, True)
        await asyncio.sleep(0)
        assert await read_to_the_end(changed, after) == (99, False)
        prices = read_prices(changed)
        assert prices.pop(8) == 70
        assert prices == {index: index - 1 for index in prices}

    asyncio.run(scenario())


@pytest.mark.usefixtures("by_and_by")
def test_reading_that_fails_leaves_answers_behind(monkeypatch):
    """And the next filter reads all of it again."""
    changed, overlay = follow_prices(), Overlay()
    say(overlay, "i01", price(7))
    faults = iter([MemoryError("injected")])
    extend = changed.columns.extend

    def fail_once(rows):
        for fault in faults:
            raise fault
        extend(rows)

    async def scenario():
        monkeypatch.setattr(changed.columns, "extend", fail_once)
        assert await follow(changed, overlay) == (0, True)
        assert await follow(changed, overlay) == (1, False)
        assert read_prices(changed) == {2: 7}

    asyncio.run(scenario())


@pytest.mark.parametrize("metadata", [b"{", b"7", b"[]", b'{"price":"x"}', b'{"price":null}'])
def test_records_of_any_form_are_read(metadata):
    """Another hand may have written them: they have no price."""
    changed, overlay = follow_prices(), Overlay()
    say(overlay, "i01", b"1" + metadata)
    assert asyncio.run(follow(changed, overlay)) == (1, False)
    assert read_prices(changed) == {}
    assert changed.columns.items.tolist() == [2]


def test_a_bundle_without_columns_is_not_followed():
    """There is no filter that passes."""
    changed, overlay = ChangedMetadata(Vocabulary(ITEMS), {}, read_bundle), Overlay()
    say(overlay, "i01", price(7))
    assert asyncio.run(follow(changed, overlay)) == (1, False)
    assert not overlay.watchers
