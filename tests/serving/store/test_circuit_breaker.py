"""The circuit breaker, compared with a plain account of all that happened."""

import logging
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from service.errors import StoreUnavailable
from service.store.circuit_breaker import CALLS, FAILURES, PATIENCE_S, PAUSE_S, WINDOW_S, CircuitBreaker


@pytest.fixture
def breaker(clock):
    """A closed breaker."""
    return CircuitBreaker("reads", clock=clock)


def call(breaker, outcome=None, *, meanwhile=lambda: False, **options):
    """One call through the breaker, which raises `outcome`; whether it was made, and nothing else meanwhile."""
    made = False
    try:
        with breaker.guard(**options):
            made = not meanwhile()
            if outcome is not None:
                raise outcome
    except (StoreUnavailable, ZeroDivisionError):
        pass
    return made


def fail(breaker, times=1, kind="connection", **options):
    """So many failed calls; how many were made."""
    return sum(call(breaker, StoreUnavailable(kind=kind), **options) for _ in range(times))


def test_opens_at_half_of_twenty(breaker, caplog):
    """Not with 19 failures, not with ten of 21; with half of twenty, at once, and the log says so."""
    caplog.set_level(logging.INFO)
    assert fail(breaker, CALLS - 1) == CALLS - 1
    assert breaker.closed
    assert fail(breaker, 5) == 1
    assert not breaker.closed
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("Circuit breaker open for store reads: 20 of 20 calls in 10 s failed")


def test_mostly_good_calls_keep_it_closed(breaker):
    """Just under one half of failures is not yet an outage."""
    for _ in range(11):
        call(breaker)
    assert fail(breaker, 10) == 10
    assert breaker.closed
    assert fail(breaker, 1) == 1
    assert not breaker.closed


def test_what_is_older_than_the_window_is_forgotten(breaker, clock):
    """Nineteen failures, a pause, one more: no outage."""
    fail(breaker, CALLS - 1)
    clock.now_s += WINDOW_S
    fail(breaker)
    assert breaker.closed


def test_one_probe_after_the_pause_decides(breaker, clock, caplog):
    """Nothing passes before; then one call, while no other does, and its success or failure settles it."""
    fail(breaker, CALLS)
    clock.now_s += PAUSE_S - 0.01
    assert not call(breaker)
    clock.now_s += 0.01
    assert fail(breaker, meanwhile=lambda: call(breaker)) == 1
    clock.now_s += PAUSE_S - 0.01
    assert not call(breaker)
    clock.now_s += 0.01
    assert call(breaker)
    assert breaker.closed
    assert caplog.records[-1].getMessage() == "Circuit breaker closed for store reads: a probe succeeded"
    assert fail(breaker, CALLS - 1) == CALLS - 1  # what was before is forgotten
    assert breaker.closed


def test_probe_that_is_cancelled_lets_the_next_one_try(breaker, clock):
    """A client that leaves does not keep the breaker from closing."""
    fail(breaker, CALLS)
    clock.now_s += PAUSE_S
    assert call(breaker, ZeroDivisionError())
    assert not breaker.closed
    assert call(breaker)
    assert breaker.closed


def test_impatient_calls_say_nothing(breaker):
    """Clients that give the store no time cannot shut it off for the others."""
    assert fail(breaker, 100, kind="timeout", within_s=PATIENCE_S / 2) == 100
    assert fail(breaker, 100, kind="timeout", within_s=PATIENCE_S) == CALLS


@pytest.mark.parametrize("kind", ["script", "damaged", "unsafe"])
def test_store_that_answers_is_no_outage(breaker, kind):
    """Keys that something else wrote, or settings that lose events, make calls fail, but there is no use in waiting."""
    assert fail(breaker, 100, kind=kind) == 100


def test_late_outcome_of_an_earlier_call_changes_nothing(breaker, clock):
    """A call that was begun before the breaker opened neither closes it nor counts afterwards."""
    with breaker.guard():
        fail(breaker, CALLS)
        clock.now_s += PAUSE_S
    assert not breaker.closed


class Account(RuleBasedStateMachine):
    """The breaker beside a list of every outcome."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.breaker = CircuitBreaker("reads", clock=self.clock)
        self.outcomes = []
        self.opened_s = None

    @rule(seconds=st.sampled_from([0.1, 1, PAUSE_S, WINDOW_S]))
    def wait(self, seconds):
        self.clock.now_s += seconds

    @rule(failures=st.lists(st.booleans(), min_size=1, max_size=30))
    @precondition(lambda self: self.opened_s is None)
    def make_calls(self, failures):
        """Calls while it is closed."""
        for failed in failures:
            assert call(self.breaker, StoreUnavailable(kind="timeout") if failed else None) == (self.opened_s is None)
            if self.opened_s is None:
                self.outcomes.append((int(self.clock.now_s), failed))
                recent = [bad for at, bad in self.outcomes if at > int(self.clock.now_s) - WINDOW_S]
                if len(recent) >= CALLS and sum(recent) >= FAILURES * len(recent):
                    self.opened_s, self.outcomes = self.clock.now_s, []

    @rule(failed=st.booleans())
    @precondition(lambda self: self.opened_s is not None)
    def try_it(self, failed):
        """A call while it is open."""
        due = self.clock.now_s - self.opened_s >= PAUSE_S
        assert call(self.breaker, StoreUnavailable(kind="timeout") if failed else None) == due
        if due:
            self.opened_s = self.clock.now_s if failed else None

    @invariant()
    def same_state(self):
        """Both know whether it is closed."""
        assert self.breaker.closed == (self.opened_s is None)


def test_the_breaker_is_where_the_account_says(make_clock):
    """Whatever is called, and however much time passes between calls."""
    limits = settings(max_examples=60, stateful_step_count=40, deadline=None)
    make: Any = lambda: Account(make_clock())  # noqa: E731 - it takes a function, which its types do not say
    run_state_machine_as_test(make, settings=limits)
