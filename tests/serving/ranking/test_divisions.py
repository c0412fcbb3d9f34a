"""Sets of boosts: disjoint, complete, found once while nothing changes, and bounded."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from model.contract.allowed import Allowed
from model.contract.attributes import gather_attributes
from model.contract.vocabulary import Vocabulary
from service.api.business_rules import Boost
from service.errors import Invalid
from service.ranking import divisions
from service.ranking.divisions import KEPT, Divisions
from service.ranking.restrictions import Restrictions
from service.system.side_thread import SideThread

V = 30
ITEMS = [f"i{number:02}" for number in range(V)]


def draw_mask(draw, share):
    """Some items."""
    return Allowed(draw.random(V + 2) < share)


def test_each_item_is_in_the_first_set_that_has_it():
    """Of what is allowed, and last those in none; a thousand times."""
    draw = np.random.default_rng(2)
    for _ in range(1000):
        allowed = None if draw.random() < 0.3 else draw_mask(draw, 0.7)
        matching = [draw_mask(draw, share) for share in draw.choice([0, 0.1, 0.5, 1], size=draw.integers(1, 5))]
        sets = divisions.divide(allowed, matching, item_count=V)
        for item in range(1, V + 1):
            may = allowed is None or allowed.mask[item]
            first = next((place for place, one in enumerate(matching) if one.mask[item]), len(matching))
            assert [one.mask[item] for one in sets] == [may and place == first for place in range(len(matching) + 1)]


def test_what_is_alike_is_divided_once():
    """The same masks give the same sets; another one, however equal, does not, and the oldest are forgotten."""
    draw = np.random.default_rng(3)
    allowed, matching = draw_mask(draw, 0.5), [draw_mask(draw, 0.5), draw_mask(draw, 0.5)]

    async def scenario():
        found = Divisions(V, SideThread("divisions", limit=1))
        sets = await found.find(allowed, matching)
        assert await found.find(allowed, [*matching]) is sets
        assert await found.find(Allowed(allowed.mask), matching) is not sets
        for _ in range(KEPT - 1):
            await found.find(None, [draw_mask(draw, 0.5)])
            assert await found.find(allowed, matching) is sets
        for _ in range(KEPT):
            await found.find(None, [draw_mask(draw, 0.5)])
        assert await found.find(allowed, matching) is not sets
        assert len(found._kept) == KEPT

    asyncio.run(scenario())


def test_many_items_are_divided_beside_the_event_loop(monkeypatch):
    """The sets are the same, and kept."""
    draw = np.random.default_rng(6)
    matching, threads = [draw_mask(draw, 0.5)], []
    divide = divisions.divide

    def note(*given, **named):
        threads.append(threading.current_thread())
        return divide(*given, **named)

    monkeypatch.setattr(divisions, "divide", note)

    async def ask(at_once):
        monkeypatch.setattr(divisions, "AT_ONCE", at_once)
        found = Divisions(V, SideThread("divisions", limit=1))
        sets = await found.find(None, matching)
        assert await found.find(None, matching) is sets
        return [one.indexes.tolist() for one in sets]

    assert asyncio.run(ask(2 * V)) == asyncio.run(ask(2 * V - 1))
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


def test_few_are_kept_of_many_items(monkeypatch):
    """By bytes, and always one."""
    draw = np.random.default_rng(4)
    monkeypatch.setattr(divisions, "KEPT_BYTES", 3 * divisions.BYTES_PER_ITEM * (V + 2))
    found = Divisions(V, SideThread("divisions", limit=1))
    for _ in range(5):
        asyncio.run(found.find(None, [draw_mask(draw, 0.5)]))
    assert len(found._kept) == 3
    monkeypatch.setattr(divisions, "KEPT_BYTES", 1)
    assert Divisions(V, SideThread("divisions", limit=1))._room == 1


@pytest.fixture
def restrictions():
    """Those of a model of thirty items, of the years 0 to 29."""
    vocabulary = Vocabulary(ITEMS)
    known = {item_id: {"year": year} for year, item_id in enumerate(ITEMS)}
    attributes = gather_attributes(vocabulary, known)
    model = SimpleNamespace(vocabulary=vocabulary, attributes=attributes, find_metadata=lambda _item_id: b"{}")
    return Restrictions(model)  # type: ignore[arg-type]  # as much of a model as is asked


def boost(add, **leaf):
    """A boost of the items whose year lies within bounds."""
    return Boost.model_validate({"filter": {"field": "year", **leaf}, "add": add})


def list_sets(boosted):
    """The years of each set, and what it adds."""
    return [((one.allowed.indexes - 1).tolist(), one.add) for one in boosted]


def test_boosts_divide_what_is_allowed(restrictions):
    """Sets without items are left out; where nothing is allowed one of them is left."""

    async def ask(boosts, allowed=None, available=None):
        return list_sets(await restrictions.divide(boosts, allowed, available))

    boosts = [boost(1, gte=25), boost(9, gte=40), boost(-2, gte=20)]
    rest = ([*range(20)], 0.0)
    assert asyncio.run(ask(boosts)) == [([25, 26, 27, 28, 29], 1), ([20, 21, 22, 23, 24], -2), rest]
    some = Allowed.only([22, 28, 30], item_count=V)
    assert asyncio.run(ask(boosts, some, some)) == [([27, 29], 1), ([21], -2)]
    nothing = Allowed.only([], item_count=V)
    assert asyncio.run(ask(boosts, nothing)) == [([], 0.0)]


def test_a_field_that_there_is_not_is_named_by_its_boost(restrictions):
    """With a pointer into the request."""
    wrong = Boost.model_validate({"filter": {"not": {"field": "colour", "exists": True}}, "add": 1})
    with pytest.raises(Invalid) as refused:
        asyncio.run(restrictions.divide([boost(1, gte=3), wrong], None, None))
    assert [error.pointer for error in refused.value.field_errors] == ["/boosts/1/filter/not/field"]
