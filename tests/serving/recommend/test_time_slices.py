"""Long work leaves turns to others, however much of it there is."""

import asyncio

from service.recommend.time_slices import SLICE_S, TimeSlices


def test_one_slice_in_a_turn(monkeypatch):
    """Three pieces of work of twelve steps, four to a slice: no turn of the loop holds more than one slice of all."""
    now_s = 1000.0
    monkeypatch.setattr("service.recommend.time_slices.time.perf_counter", lambda: now_s)
    steps_by_turn, ended = [0], 0

    async def work(slices):
        nonlocal now_s, ended
        for _ in range(12):
            await slices.pause()
            now_s += SLICE_S / 3.5
            steps_by_turn[-1] += 1
        ended += 1

    async def scenario():
        slices = TimeSlices()
        pieces = [asyncio.create_task(work(slices)) for _ in range(3)]
        while ended < len(pieces):
            await asyncio.sleep(0)
            steps_by_turn.append(0)

    asyncio.run(scenario())
    assert sum(steps_by_turn) == 36
    assert max(steps_by_turn) <= 4
