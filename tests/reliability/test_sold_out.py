"""Items that are sold out and come back under load, with two workers: the short form of `make sold-out`."""

import asyncio
from typing import Any

import pytest

from benchmarks.harness.processes import ServiceProcess
from benchmarks.reliability.sold_out import Shelf, open_shelves, sell_out

CHANGES = 100


def test_no_answer_has_what_was_sold_out_before_it_was_asked(store, folder, bundle):
    """Whoever answers, by whatever source: every change counts from its acknowledgement on, in every worker."""

    async def scenario():
        service = ServiceProcess(
            store.url,
            open_shelves(bundle, folder / "bundle"),
            folder / "service.log",
            "--workers",
            "2",
            "--drain-delay-s",
            "0",
        )
        await service.start()
        try:
            return await sell_out(service.url, changes=CHANGES, rate=60)
        finally:
            await service.stop()

    report = asyncio.run(scenario())
    assert report.shelf.wrong == []
    assert not [fault for fault in report.shelf.admitted if "deadline" not in fault]  # a busy machine makes some late
    assert report.failed == []
    assert report.changes == CHANGES
    assert report.shelf.answers > CHANGES
    assert report.shelf.behind < 0.5 * report.shelf.answers  # a busy machine may be late now and then


SEEN: dict[str, Any] = {"items": [{"item_id": f"i{n:02d}"} for n in range(1, 12)], "source": "model", "degraded": None}


@pytest.mark.parametrize(
    ("asked_s", "filtered", "wrong"), [(10.5, True, ""), (9.5, True, ""), (11.5, False, "i01"), (12.5, True, "i01 i02")]
)
def test_the_judge_sees_what_is_wrong(asked_s, filtered, wrong):
    """An item that was gone when the answer was asked for, for filtered answers a closed one too, and no other."""
    shelf = Shelf(gone_s={"sold out": {"i01": 11.0}, "closed": {"i02": 12.0}})
    assert shelf.check(SEEN, asked_s, filtered=filtered) == wrong
    assert (len(shelf.wrong), len(shelf.admitted)) == (bool(wrong), 0)
    assert shelf.check(SEEN | {"catalogue": {"version": 1, "behind": True}}, asked_s, filtered=filtered) == ""
    assert (len(shelf.wrong), len(shelf.admitted)) == (bool(wrong), bool(wrong))


def test_the_judge_sees_old_versions_and_what_is_missing():
    """A version that is older than one acknowledged before the question; of a whole answer an item that is there."""
    shelf = Shelf(versions=[(10.0, 4), (11.0, 5)])
    assert shelf.check(SEEN | {"catalogue": {"version": 4, "behind": False}}, 10.5) == ""
    assert shelf.check(SEEN | {"catalogue": {"version": 4, "behind": False}}, 11.5) == "version 4 after 5"
    assert shelf.check(SEEN, 11.5, whole=True) == "version 0 after 5 no i12"
    assert shelf.check(SEEN | {"catalogue": {"version": 5, "behind": False}}, 11.5, whole=True) == "no i12"
    assert shelf.check(SEEN | {"catalogue": {"version": 4, "behind": True}}, 11.5) == ""
    assert (len(shelf.wrong), len(shelf.admitted)) == (3, 1)
