"""The catalogue in the store: the Lua script against a plain model of it, its limits, its durability, its damage."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.errors import StoreNotDurable, StoreUnavailable
from service.store.catalogue import CatalogueStore, Changed, ItemChange
from service.store.catalogue_version import read_version_reply
from service.store.connection import connect
from service.store.history import HistoryStore

KNOWN = {"a", "b", "{c}:*"}
"""The items of the bundle."""
VERSION, ITEMS, LOG = (f"nextitem:{{catalogue}}:{kind}" for kind in ("version", "items", "log"))


class CatalogueModel:
    """What the store should hold: the rules of catalogue.lua in a dictionary."""

    def __init__(self, *, most_items):
        self.records: dict[str, bytes] = {}
        self.log: list[tuple[str, bytes]] = []
        self.most_items = most_items

    def change(self, changes):
        """Make all changes or none: how many changed, or why none did."""
        after = dict(self.records)
        logged = []
        for change in changes:
            now = after.get(change.item_id)
            known = change.item_id in KNOWN
            exists = known if now is None else now != b"d"
            if change.how == "delete":
                if now is None and not known:
                    return "missing"
                record = b"d"
            else:
                if change.how == "patch" and not exists:
                    return "missing"
                old = now if exists and now is not None and change.how != "put" else b"1"
                flag = old[:1] if change.available is None else b"1" if change.available else b"0"
                record = flag + (change.metadata or old[1:])
            if record == b"1" and known:
                record = b""
            if record != (now or b"") or (not record and now is not None):
                logged.append((change.item_id, record))
                after.pop(change.item_id, None)
                if record:
                    after[change.item_id] = record
        if len(after) > max(self.most_items, len(self.records)):
            return "full"
        self.records = after
        self.log += logged
        return len(logged)


CHANGES = st.builds(
    ItemChange,
    item_id=st.sampled_from([*sorted(KNOWN), "new", "newer", "d"]),
    how=st.sampled_from(["put", "merge", "patch", "delete"]),
    known=st.just(False),
    available=st.sampled_from([None, True, False]),
    metadata=st.sampled_from([None, b"{}", b'{"t":"1"}']),
).map(lambda change: change._replace(known=change.item_id in KNOWN))
REQUESTS = st.lists(
    st.lists(CHANGES, min_size=1, max_size=5, unique_by=lambda change: change.item_id), min_size=1, max_size=10
)


def make_change(item_id, how="put", **fields):
    """A change of an item that the bundle has if it is one of KNOWN."""
    return ItemChange(item_id, how, item_id in KNOWN, **fields)


@pytest.fixture
def in_catalogue(in_store):
    """Run a scenario, an async function of a CatalogueStore with the given options."""

    def run(scenario, *, options=None, **store_options):
        return in_store(lambda store: scenario(CatalogueStore(store, **(options or {}))), **store_options)

    return run


async def read_all(catalogue):
    """All records."""
    cursor, records = await catalogue.read_records(0)
    while cursor:
        cursor, more = await catalogue.read_records(cursor)
        records = {**records, **more}
    return dict(records)


def test_the_store_does_what_the_model_does(store_url, raw):
    """Whatever is changed in whatever order: outcomes, versions, records and the log are those of the model."""
    with asyncio.Runner() as runner:

        async def open_store():
            patient: dict[str, Any] = {"read_timeout_s": 10.0, "write_timeout_s": 10.0}  # a busy machine is no outage
            return HistoryStore(connect(store_url), **patient)

        store = runner.run(open_store())

        @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(requests=REQUESTS, most_items=st.sampled_from([2, 1000]))
        def check(requests, most_items):
            raw.flushall()
            catalogue = CatalogueStore(store, most_items=most_items, most_logged=5)
            model = CatalogueModel(most_items=most_items)
            for changes in requests:
                expected = model.change(changes)
                outcome = runner.run(catalogue.change(changes))
                if isinstance(outcome, Changed):
                    assert (outcome.items, outcome.version) == (expected, len(model.log))
                    assert 0 <= outcome.age_ms < 60_000
                else:
                    assert outcome == expected
                assert runner.run(read_all(catalogue)) == model.records
                assert read_version_reply(runner.run(catalogue.read_version())) == len(model.log)
                found = [(item_id.decode(), record) for _, (_, item_id, _, record) in _flat(raw.xrange(LOG))]
                assert found == model.log[-5:]
            last = runner.run(catalogue.read_last_change())
            assert int(last.partition(b"-")[0] or 0) == len(model.log)
            if last:
                assert [one.entry_id for one in runner.run(catalogue.read_changes(last))] == [last]

        try:
            check()
        finally:
            runner.run(store.close())


def _flat(entries):
    return [(entry_id, [word for pair in fields.items() for word in pair]) for entry_id, fields in entries]


def test_a_thousand_changes_are_one_step(in_catalogue, raw):
    """They get a thousand versions in a row, and the log gives them a page at a time."""
    changes = [make_change(f"n{number}", metadata=b"{}" + b" " * number) for number in range(1000)]

    async def scenario(catalogue):
        assert await catalogue.change(changes) == Changed(1000, 1000, 0)
        assert (await catalogue.change(changes))[:2] == (0, 1000)
        first = await catalogue.read_changes(b"")
        await catalogue.change([make_change("n0", available=False)])
        return first, await catalogue.read_changes(first[-1].entry_id), await read_all(catalogue)

    first, rest, records = in_catalogue(scenario)
    assert [one.version for one in first] == list(range(1, 1001))
    assert [(one.version, one.item_id, one.record) for one in rest[1:]] == [(1001, "n0", b"0")]
    assert records == {change.item_id: b"1" + change.metadata for change in changes} | {"n0": b"0"}
    assert raw.hlen(ITEMS) == 1001  # and the time of the first change


def test_beyond_the_limit_nothing_changes(in_catalogue):
    """One record too many refuses all of a request; what is put back to the bundle's makes room."""

    async def scenario(catalogue):
        await catalogue.change([make_change("new"), make_change("a", available=False)])
        assert await catalogue.change([make_change("b", how="delete"), make_change("new", available=False)]) == "full"
        assert await read_all(catalogue) == {"new": b"1", "a": b"0"}
        assert (await catalogue.change([make_change("a"), make_change("b", how="delete")]))[:2] == (2, 4)
        return await read_all(catalogue)

    assert in_catalogue(scenario, options={"most_items": 2}) == {"new": b"1", "b": b"d"}


def test_an_unsafe_store_is_refused(in_catalogue, settings):
    """As for events: what may be lost is not acknowledged, and is stored once the store is safe again."""
    settings(appendfsync="everysec")

    async def refuse(catalogue):
        with pytest.raises(StoreNotDurable):
            await catalogue.change([make_change("a", available=False)])

    in_catalogue(refuse)
    in_catalogue(lambda catalogue: catalogue.change([make_change("a", available=False)]), durability="relaxed")
    settings(appendfsync="always")
    assert in_catalogue(lambda catalogue: catalogue.change([make_change("a", available=False)]))[:2] == (0, 1)


def test_settings_that_turn_unsafe_are_noticed_with_the_next_change(in_catalogue, raw, settings):
    """The round trip that changes checks them, so that no change is acknowledged before."""

    async def scenario(catalogue):
        await catalogue.change([make_change("a", available=False)])
        settings(appendfsync="everysec")
        with pytest.raises(StoreNotDurable):
            await catalogue.change([make_change("b", available=False)])

    in_catalogue(scenario)
    assert raw.get(VERSION) == b"2"  # it was made, and repeating it is safe


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("HSET", VERSION, "a", "b"), "damaged"),
        (("SET", VERSION, "many"), "damaged"),
        (("SET", VERSION, "9" * 16), "damaged"),
        (("SET", VERSION, "7"), "damaged"),
        (("SET", ITEMS, "x"), "damaged"),
        (("HSET", ITEMS, "", "soon"), "damaged"),
        (("SET", LOG, "x"), "damaged"),
        (("XADD", LOG, "9-9", "i", "a"), "damaged"),
    ],
)
def test_damaged_keys_are_refused_and_left_alone(in_catalogue, raw, command, kind):
    """What this service did not write is not written over, and histories are read all the same."""
    raw.execute_command(*command)
    before = {key: raw.dump(key) for key in (VERSION, ITEMS, LOG)}

    async def scenario(catalogue):
        with pytest.raises(StoreUnavailable) as refused:
            await catalogue.change([make_change("a", available=False)])
        return refused.value.kind

    assert in_catalogue(scenario) == kind
    assert {key: raw.dump(key) for key in (VERSION, ITEMS, LOG)} == before


def test_odd_records_are_no_catalogue(in_catalogue, raw):
    """A reader refuses records and changes of another form."""

    async def scenario(catalogue):
        for read in (catalogue.read_records(0), catalogue.read_changes(b""), catalogue.read_last_change()):
            with pytest.raises(StoreUnavailable):
                await read

    raw.hset(ITEMS, "a", "2")
    raw.xadd(LOG, {"i": "a", "r": "2"}, id="1-1")
    raw.set(VERSION, "2")
    in_catalogue(scenario)
    raw.delete(LOG)
    raw.xadd(LOG, {"x": "a", "r": "1"}, id="1-1")
    in_catalogue(scenario)
