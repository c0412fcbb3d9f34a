"""Rows by user: sorted, each once, the newest ones, in memory that does not grow with the log."""

import os
import random
import tracemalloc

import pytest

from service.history_import import spill as spill_module
from service.history_import.spill import MAX_FILES, Spill


def fill(spill, rows):
    """Put rows of user, time, item, value into a spill."""
    for user, at, item, value in rows:
        spill.add(user, at, item, "view", value)


def take(spill, keep=None):
    """All users by id."""
    users = list(spill.take_users(keep=keep))
    assert len({user.user_id for user in users}) == len(users)
    return {user.user_id: user for user in users}


@pytest.mark.parametrize("expected_bytes", [0, 100 << 20, 1 << 40])
def test_rows_come_by_user_in_order_of_time(expected_bytes):
    """From one file or many; equal times keep the order of the log."""
    with Spill(expected_bytes=expected_bytes) as spill:
        fill(spill, [("u", 5, "late", None), ("v", 1, "x", 2.5), ("u", 3, "b", None), ("u", 3, "a", 1e-9)])
        users = take(spill)
    assert users["u"].rows == [
        "0000000000003 b view -",
        "0000000000003 a view 1e-09",
        "0000000000005 late view -",
    ]
    assert users["v"].rows == ["0000000000001 x view 2.5"]


def test_repeats_and_contradictions_are_counted():
    """The first of the log counts, whatever its value."""
    with Spill(expected_bytes=0) as spill:
        fill(spill, [("u", 1, "a", 1.0), ("u", 1, "a", 2.0), ("u", 1, "a", 1.0), ("u", 1, "b", 1.0)])
        [user] = spill.take_users(keep=10)
    assert user == ("u", ["0000000000001 a view 1.0", "0000000000001 b view 1.0"], 1, 1, 0)


@pytest.mark.parametrize("seed", range(3))
def test_only_the_newest_are_kept(monkeypatch, seed):
    """Of a user with far more, in any order: the same as of a sorted list; all counts add up."""
    monkeypatch.setattr(spill_module, "PENDING", 7)
    dice = random.Random(seed)  # noqa: S311 - no secret
    rows = [("u", dice.randrange(500), f"i{dice.randrange(3)}", None) for _ in range(1000)]
    with Spill(expected_bytes=0) as spill:
        fill(spill, rows)
        [user] = spill.take_users(keep=20)
    distinct: dict = {}
    for _, at, item, _value in rows:
        distinct.setdefault((at, item), len(distinct))
    newest = sorted(distinct, key=lambda one: (one[0], distinct[one]))[-20:]
    assert user.rows == [f"{at:013d} {item} view -" for at, item in newest]
    assert user.repeated + user.contradicting + user.old + len(user.rows) == 1000


def test_files_are_bounded_and_have_no_name(tmp_path):
    """However large the log is; nothing is seen in the folder, so that nothing can be left there."""
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None  # noqa: PTH208, PTH112 - not files
    with Spill(expected_bytes=1 << 50, folder=tmp_path) as spill:
        fill(spill, [("u", 1, "a", None)])
        assert list(tmp_path.iterdir()) == []
        if before is not None:
            assert len(os.listdir("/proc/self/fd")) - before <= MAX_FILES  # noqa: PTH208 - as above


def test_one_user_with_a_whole_log_needs_little_memory():
    """100,000 events of one user, of whom ten are kept: a fraction of what they all would take."""
    with Spill(expected_bytes=0) as spill:
        fill(spill, (("u", number, "item", None) for number in range(100_000)))
        spill._flush()
        tracemalloc.start()
        try:
            [user] = spill.take_users(keep=10)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(user.rows) == 10
    assert peak_bytes < 1 << 20
