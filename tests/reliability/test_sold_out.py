"""Items that are sold out and come back under load, with two workers: the short form of `make sold-out`."""

import asyncio
from typing import Any

import pytest

from benchmarks.harness.processes import ServiceProcess
from benchmarks.reliability.sold_out import Shelf, sell_out

CHANGES = 100


def test_no_answer_has_what_was_sold_out_before_it_was_asked(store, folder, bundle):
    """Whoever answers, by whatever source: every change counts from its acknowledgement on, in every worker."""

    async def scenario():
        service = ServiceProcess(store.url, bundle, folder / "service.log", "--workers", "2", "--drain-delay-s", "0")
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


@pytest.mark.parametrize(("asked_s", "wrong"), [(10.5, ""), (9.5, ""), (11.5, "i01")])
def test_the_judge_sees_what_is_wrong(asked_s, wrong):
    """An item that was gone when the answer was asked for, and no other."""
    shelf = Shelf(gone_s={"i01": 11.0})
    answer: dict[str, Any] = {"items": [{"item_id": "i01"}, {"item_id": "i02"}], "source": "model", "degraded": None}
    assert shelf.check(answer, asked_s) == wrong
    assert (len(shelf.wrong), len(shelf.admitted)) == (bool(wrong), 0)
    assert shelf.check(answer | {"catalogue": {"version": 1, "behind": True}}, asked_s) == ""
    assert (len(shelf.wrong), len(shelf.admitted)) == (bool(wrong), bool(wrong))
