"""Split a log into training, validation and test: by leave-one-out, at two moments for all users, or not at all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.data.histories import Histories
from training.data.interactions import Log
from training.errors import DataError

MIN_EVENTS = 3
"""In leave-one-out, users with fewer events only train."""

_CHOICE_SEED = 0
"""The held-out users must be the same whenever a log is split."""


@dataclass(frozen=True)
class Questions:
    """B histories and the item (B) that followed each."""

    histories: Histories
    targets: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, rows: NDArray[np.int64]) -> "Questions":
        """Some of the questions, in the order of `rows`."""
        return Questions(self.histories.select(rows), self.targets[rows])

    @property
    def repeated(self) -> NDArray[np.bool_]:
        """Whether each target stands in its history (B): an item that its user has met before."""
        rows, items = self.histories.flatten()
        met: NDArray[np.bool_] = np.bincount(rows[items == self.targets[rows]], minlength=len(self)) > 0
        return met


@dataclass(frozen=True)
class Split:
    """A log cut in three. `train` has a history for every user, which may be empty; a user has one question or none."""

    train: Histories
    validation: Questions
    test: Questions
    counted: Histories
    """What may be counted to answer the test questions, a history for every user: `train`, and where all users are cut
    at one moment also what came between, which anybody knows by then."""


def cut_log(log: Log, split_name: str, *, held_out_users: int | None, test_share: float) -> Split:
    """Cut a log by a split of [data]. Raises DataError where nothing is left to ask."""
    if split_name == "time":
        return split_by_time(log, test_share)
    if split_name == "none":
        return hold_nothing_out(log)
    split = leave_one_out(log, held_out_users)
    if not len(split.test):
        raise DataError(f"no user has {MIN_EVENTS} events of known items, so there is nothing to validate or test on")
    return split


def leave_one_out(log: Log, held_out_users: int | None = None) -> Split:
    """The last event tests, the one before validates, the rest trains (Sun et al. 2019, section 4.2).

    With `held_out_users`, only so many users validate, chosen at random; the event before last of the others trains.
    """
    starts, ends = log.offsets[:-1], log.offsets[1:]
    has_test = ends - starts >= MIN_EVENTS
    held_out = has_test.copy()
    if held_out_users is not None:
        order = np.random.default_rng(_CHOICE_SEED).permutation(np.flatnonzero(has_test))
        held_out[order[held_out_users:]] = False
    train = Histories(log.items, starts, ends - has_test - held_out)
    return Split(
        train=train,
        validation=_ask(log, starts[held_out], ends[held_out] - 2),
        test=_ask(log, starts[has_test], ends[has_test] - 1),
        counted=train,
    )


def split_by_time(log: Log, test_share: float) -> Split:
    """The newest share of all events tests, as large a share before it validates, whatever is older trains.

    A user's question is the first event in the stretch, after everything that came before; users without an
    event before it have no question. Events of one moment are never parted. Raises DataError.
    """
    begins = find_moments(log, test_share)
    assert log.timestamps_ms is not None  # noqa: S101 - find_moments has seen that there are times
    starts, ends = log.offsets[:-1], log.offsets[1:]
    train_ends, validation_ends = (_find_first(log, log.timestamps_ms >= begin) for begin in begins)
    validated = (train_ends > starts) & (validation_ends > train_ends)
    tested = (validation_ends > starts) & (ends > validation_ends)
    if not (validated.any() and tested.any()):
        raise DataError("no user has events before and after the time of the split: another data.test_share may help")
    return Split(
        train=Histories(log.items, starts, train_ends),
        validation=_ask(log, starts[validated], train_ends[validated]),
        test=_ask(log, starts[tested], validation_ends[tested]),
        counted=Histories(log.items, starts, validation_ends),
    )


def find_moments(log: Log, test_share: float) -> tuple[int, int]:
    """When validation and test begin, in epoch milliseconds, where so many of the newest events test.

    Raises DataError.
    """
    if log.timestamps_ms is None:
        raise DataError("the log has no times, so it cannot be split by time: name the column by data.timestamp_column")
    moments = np.sort(log.timestamps_ms)
    validated, tested = (int(moments[int(len(moments) * (1 - share))]) for share in (2 * test_share, test_share))
    if not moments[0] < validated < tested:
        raise DataError("too many events share a time: a split by time leaves nothing to train or validate on")
    return validated, tested


def hold_nothing_out(log: Log) -> Split:
    """All events train, and there is nothing to validate or test on."""
    histories = log.histories
    nothing = Questions(histories.select(slice(0, 0)), log.items[:0])
    return Split(train=histories, validation=nothing, test=nothing, counted=histories)


def _find_first(log: Log, late: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where each user's late events begin (U). They lie behind the user's other events."""
    early = np.concatenate([[0], np.cumsum(~late)]).astype(np.int64)
    first: NDArray[np.int64] = log.offsets[:-1] + early[log.offsets[1:]] - early[log.offsets[:-1]]
    return first


def _ask(log: Log, starts: NDArray[np.int64], positions: NDArray[np.int64]) -> Questions:
    """Questions for the events at `positions`, asked when these came, after all that came since `starts`."""
    asked_ms = None if log.timestamps_ms is None else log.timestamps_ms[positions]
    return Questions(Histories(log.items, starts, positions, asked_ms), log.items[positions])


def count_items(histories: Histories, item_count: int) -> NDArray[np.int64]:
    """How often each item occurs (V)."""
    counts = np.bincount(histories.flatten()[1], minlength=item_count + 1)
    return counts[1:].astype(np.int64)
