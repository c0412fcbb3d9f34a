"""The sessions of a bundle: what was written is read, anything else is refused."""

import numpy as np
import pytest

from model.contract.sessions import Sessions


@pytest.fixture
def sessions():
    """Four sessions of five items, one of them empty."""
    return Sessions(
        item_count=5,
        starts=np.array([0, 2, 2, 5, 6]),
        items=np.array([1, 3, 2, 3, 5, 4], dtype=np.int32),
        moments=np.array([7, 0, 9, 8]),
        neighbours=2,
        candidates=3,
        window=4,
    )


def test_what_is_written_is_read(sessions):
    """Arrays and numbers come back, and so do the scores."""
    read = Sessions.from_bytes(sessions.to_bytes(), 5)
    for name in ("starts", "items", "moments"):
        np.testing.assert_array_equal(getattr(read, name), getattr(sessions, name))
    assert (read.neighbours, read.candidates, read.window) == (2, 3, 4)
    for history in ([3], [1, 2], [4, 4], []):
        asked = np.array(history, dtype=np.int32)
        np.testing.assert_array_equal(read.score(asked), sessions.score(asked))


def test_an_item_of_a_likely_session_scores(sessions):
    """After item 3 both sessions that hold it give their items their weight, rarer items more; others nothing."""
    scores = sessions.score(np.array([3], dtype=np.int32))
    rare, frequent = 1 + np.log(3), 1 + np.log(3 / 2)
    np.testing.assert_allclose(scores, [rare, rare, 2 * frequent, 0, rare])
    assert not sessions.score(np.array([], dtype=np.int32)).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": np.array([0, 2, 2, 5, 5])}, "do not lie one after the other"),
        ({"starts": np.array([0, 3, 2, 5, 6])}, "do not lie one after the other"),
        ({"starts": np.array([0, 2, 6])}, "do not lie one after the other"),
        ({"items": np.array([1, 3, 2, 3, 6, 4], dtype=np.int32)}, "of items that are none"),
        ({"items": np.array([0, 3, 2, 3, 5, 4], dtype=np.int32)}, "of items that are none"),
        ({"items": np.array([3, 3, 2, 3, 5, 4], dtype=np.int32)}, "not in rising order"),
        ({"items": np.array([1, 3, 2, 3, 5, 4])}, "not starts, items, moments and numbers"),
        ({"moments": np.array([7.0, 0, 9, 8])}, "not starts, items, moments and numbers"),
        ({"window": 0}, "a number below 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_what_is_no_index_is_refused(sessions, change, message):
    """Before anything is scored by it."""
    content = Sessions(**{**vars(sessions), **change}).to_bytes()
    with pytest.raises(ValueError, match=message):
        Sessions.from_bytes(content, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [*((lambda it, cut=cut: it[:cut], "no arrays") for cut in (0, 10, 400, -1)), (lambda it: it + b"0", "more than")],
    ids=["nothing", "no header", "few", "short", "long"],
)
def test_other_content_is_refused(sessions, change, message):
    """Whatever was cut off or put on."""
    with pytest.raises(ValueError, match=message):
        Sessions.from_bytes(change(sessions.to_bytes()), 5)
