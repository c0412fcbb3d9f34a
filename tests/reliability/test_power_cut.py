"""Acknowledged means on disk: what a power cut takes was not acknowledged, and the test would see it if it were."""

import asyncio

import pytest

from benchmarks.harness.processes import SAFE_OPTIONS
from benchmarks.reliability.chaos.system import run_system

ACKNOWLEDGED = 500


@pytest.fixture
def cut_under_load(folder, library, bundle, binary):
    """Cut the power of a store under load twice; what is wrong then, and how many bytes the cuts took."""

    async def run(options, durability):
        gone = 0
        parts = {"binary": binary, "library": library, "bundle": bundle}
        async with run_system(folder, **parts, options=options, durability=durability) as system:
            for acknowledged in (ACKNOWLEDGED // 2, ACKNOWLEDGED):
                await system.wait_for(acknowledged)
                gone += await system.store.lose_power()
                await system.store.start()
            return await system.settle(), gone

    return lambda options, durability: asyncio.run(run(options, durability))


def test_nothing_acknowledged_is_lost_in_a_power_cut(cut_under_load):
    """Two cuts under load, 500 acknowledged events: none lost, none twice, none out of order."""
    violations, _ = cut_under_load(SAFE_OPTIONS, "strict")
    assert violations == []


def test_cut_takes_what_was_not_synced(cut_under_load):
    """The control: with fsync once a second the same cuts lose acknowledged events, and they are found."""
    violations, gone = cut_under_load({**SAFE_OPTIONS, "appendfsync": "everysec"}, "relaxed")
    assert gone > 0
    assert "lost" in {violation.kind for violation in violations}
