"""Properties of the split and of the windows cut from flat arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.contract.sequence import align_right, encode_histories
from model.contract.vocabulary import Vocabulary
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.split import count_items, leave_one_out
from training.fit.batches import cut_windows

ITEMS = 9
ROWS = st.lists(st.lists(st.integers(1, ITEMS), max_size=12), min_size=1, max_size=8)


def _flat(rows):
    ends = np.cumsum([len(row) for row in rows]).astype(np.int64)
    starts = ends - np.array([len(row) for row in rows])
    return Histories(np.array([item for row in rows for item in row], dtype=np.int32), starts, ends)


def _log(rows):
    histories = _flat(rows)
    return Log(
        user_ids=[str(row) for row in range(len(rows))],
        vocabulary=Vocabulary([f"i{item}" for item in range(1, ITEMS + 1)]),
        offsets=np.concatenate([[0], histories.ends]).astype(np.int64),
        items=histories.items,
        timestamps_ms=None,
    )


@given(ROWS)
def test_the_split_keeps_every_event_once_and_in_order(rows):
    """Train + validation + test is the log; users with fewer than 3 events only train."""
    split = leave_one_out(_log(rows))
    asked = [row for row in rows if len(row) >= 3]
    assert [row.tolist() for row in split.train] == [row[:-2] if len(row) >= 3 else row for row in rows]
    assert split.validation.targets.tolist() == [row[-2] for row in asked]
    assert split.test.targets.tolist() == [row[-1] for row in asked]
    assert [row.tolist() for row in split.validation.histories] == [row[:-2] for row in asked]
    assert [row.tolist() for row in split.test.histories] == [row[:-1] for row in asked]


@pytest.mark.parametrize(("events", "questions"), [(2, 0), (3, 1), (4, 1)])
def test_three_events_make_a_question(events, questions):
    """The border of the split, at n - 1, n and n + 1."""
    split = leave_one_out(_log([list(range(1, events + 1))]))
    assert len(split.test) == len(split.validation) == questions
    assert split.train.lengths.tolist() == [events - 2 * questions]


@given(ROWS, st.integers(2, 14))
def test_windows_are_what_the_agreement_says(rows, max_length):
    """Vectorised windows equal align_right, and questions equal encode_histories, padding included."""
    histories = _flat(rows)
    windows = histories.cut_windows(max_length)
    expected = align_right([row[-max_length:] for row in rows])
    assert np.array_equal(windows.item_ids, expected.item_ids)
    assert np.array_equal(windows.lengths, expected.lengths)
    asked = histories.query_next(max_length=max_length, mask_index=ITEMS + 1)
    expected = encode_histories(rows, max_length=max_length, mask_index=ITEMS + 1)
    assert np.array_equal(asked.item_ids, expected.item_ids)
    assert np.array_equal(asked.lengths, expected.lengths)
    assert asked.item_ids.dtype == expected.item_ids.dtype == np.int32


@given(ROWS, st.integers(2, 6), st.integers(1, 6))
def test_training_windows_cover_each_history(rows, max_length, step):
    """Each window is a stretch of its user's history, full where it can be; with step <= length nothing is left out."""
    histories = _flat(rows)
    windows, users = cut_windows(histories, max_length, step)
    covered: list[set[int]] = [set() for _ in rows]
    for row, user in enumerate(users):
        start, end = windows.starts[row] - histories.starts[user], windows.ends[row] - histories.starts[user]
        assert 0 <= start < end <= len(rows[user])
        assert end - start == min(max_length, len(rows[user]))
        covered[user] |= set(range(start, end))
    for row, places in zip(rows, covered, strict=True):
        assert not row or len(row) - 1 in places
        assert step > max_length or places == set(range(len(row)))


def test_flattening_pairs_each_item_with_its_row():
    """Rows and items stand side by side, whatever rows were selected and in what order."""
    histories = _flat([[1, 2], [], [3, 4, 5]])
    rows, items = histories.select(np.array([2, 1, 0])).flatten()
    assert rows.tolist() == [0, 0, 0, 2, 2]
    assert items.tolist() == [3, 4, 5, 1, 2]


def test_counts_are_by_index():
    """counts[j] is how often index j + 1 occurs, absent items 0."""
    assert count_items(_flat([[1, 1, 3], [3]]), 4).tolist() == [2, 0, 2, 0]


def test_a_part_of_the_log_knows_whose_it_is(make_histories):
    """Windows, crops and empty training histories lie in the stretch of their user, and so do the newest items."""
    log = make_histories([[1, 2, 3], [4], [5, 6, 7, 8]])
    train = Histories(log.items, log.starts, log.ends - [1, 1, 2])
    windows, users = cut_windows(log, 2, 1)
    assert log.find_owners(windows).tolist() == users.tolist() == [0, 0, 1, 2, 2, 2]
    assert train.find_owners(log.select(np.array([2, 0, 1]))).tolist() == [2, 0, 1]
    assert [part.tolist() for part in log.cut_newest(2)] == [[2, 3], [4], [7, 8]]
    assert log.find_owners(log.cut_newest(2)).tolist() == [0, 1, 2]
