"""The last problems: alike ones are one row, there is a bound on everything, and workers share them by files."""

import asyncio
import os
import time

import orjson
import pytest

from service.telemetry import problems
from service.telemetry.problems import ALIKE_S, KEPT, ProblemLog


@pytest.fixture
def note(monkeypatch, clock):
    """Note a problem at the clock's time."""
    monkeypatch.setattr(time, "time", clock)

    def note(log, reason="deadline", *, route="/recommend", code=200, request_id="r"):
        log.note(route=route, code=code, reason=reason, request_id=request_id)

    return note


def read(log):
    """What a log tells, as tuples."""
    rows = asyncio.run(log.read())
    return [(row.route, row.code, row.reason, row.count, row.request_id) for row in rows]


def write(log, monkeypatch, *, until=None):
    """Let a worker write its file until that is so, or for a moment."""
    monkeypatch.setattr(problems, "WRITE_EVERY_S", 0.001)

    async def scenario():
        task = asyncio.create_task(log.keep_written())
        for _ in range(10 if until is None else 1000):
            await asyncio.sleep(0.01)
            if until is not None and until():
                break
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(scenario())


def test_alike_problems_of_a_minute_are_one_row(note, clock):
    """With a count and the last request's id; another reason, route or status, or a minute later, is another row."""
    log = ProblemLog(None)
    for number in range(3):
        note(log, request_id=f"r{number}")
        clock.now_s += 1
    note(log, "overloaded", code=503)
    clock.now_s += ALIKE_S
    note(log, request_id="later")
    [later, other, first] = asyncio.run(log.read())
    assert (later.count, later.request_id) == (1, "later")
    assert (other.reason, other.code, other.count) == ("overloaded", 503, 1)
    assert (first.count, first.request_id, first.last_ms - first.first_ms) == (3, "r2", 2000)


def test_only_the_newest_are_kept(note, clock):
    """However many there are; a flood of one kind drives no other kind away."""
    log = ProblemLog(None)
    note(log, "store_unavailable")
    for _ in range(10_000):
        note(log)
    assert [reason for _, _, reason, *_ in read(log)] == ["store_unavailable", "deadline"]
    for number in range(2 * KEPT):
        clock.now_s += 2 * ALIKE_S
        note(log, request_id=str(number))
    rows = read(log)
    assert len(rows) == KEPT
    assert rows[0][-1] == str(2 * KEPT - 1)


def test_a_clock_that_goes_back_begins_a_new_row(note, clock):
    """A row never ends before it begins."""
    log = ProblemLog(None)
    note(log)
    clock.now_s -= 3600
    note(log)
    assert [row[3] for row in read(log)] == [1, 1]


def test_workers_share_their_problems(note, clock, monkeypatch, tmp_path):
    """Each sees what the others wrote, the newest first; a dead worker's stay; what is no such file is passed over."""
    mine, other = ProblemLog(tmp_path), ProblemLog(tmp_path)
    note(mine, request_id="mine")
    clock.now_s += 1
    note(other, "internal", code=500, request_id="theirs")
    monkeypatch.setattr(os, "getpid", lambda: 4_000_000)
    write(other, monkeypatch, until=(tmp_path / "problems-4000000.json").exists)
    monkeypatch.undo()
    (tmp_path / "problems-1.json").write_bytes(b"[[1,")
    (tmp_path / "problems-2.json").write_bytes(orjson.dumps([[1, 2]]))
    (tmp_path / "counter_7.db").write_bytes(b"metrics")
    assert read(mine) == [("/recommend", 500, "internal", 1, "theirs"), ("/recommend", 200, "deadline", 1, "mine")]
    assert [file.name for file in tmp_path.glob("*.partial")] == []


def test_nothing_is_written_without_problems(monkeypatch, tmp_path):
    """A worker that is well leaves no file, and one that is alone has no folder."""
    write(ProblemLog(tmp_path), monkeypatch)
    assert list(tmp_path.iterdir()) == []
    write(ProblemLog(None), monkeypatch)


def test_a_full_disk_stops_nobody(note, monkeypatch, tmp_path):
    """What cannot be written is not shown to others; the worker goes on."""
    log = ProblemLog(tmp_path / "gone")
    note(log)
    write(log, monkeypatch)
    assert len(read(log)) == 1


def test_files_of_dead_workers_do_not_pile_up(monkeypatch, tmp_path):
    """A worker that starts keeps the newest."""
    monkeypatch.setattr(problems, "FILES_KEPT", 3)
    for number in range(10):
        file = tmp_path / f"problems-{number}.json"
        file.write_bytes(b"[]")
        os.utime(file, (number, number))
    write(ProblemLog(tmp_path), monkeypatch, until=lambda: len(list(tmp_path.iterdir())) == 3)
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"problems-{number}.json" for number in (7, 8, 9)]
