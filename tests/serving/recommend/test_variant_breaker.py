"""A candidate that fails or is slow is taken out of use for a minute; one that is well, or hardly asked, is not."""

import pytest

from service.recommend.variant_breaker import LEAST_TRIES, PAUSE_S, WINDOW_S, VariantBreaker


@pytest.fixture
def breaker(clock):
    """A closed breaker."""
    return VariantBreaker(clock=clock)


@pytest.mark.parametrize(
    ("seconds", "opens"), [(None, True), (0.5, True), (0.0351, True), (0.0349, False), (0.001, False)]
)
def test_failed_and_slow_runs_open_it(breaker, seconds, opens):
    """Slow: over three times the champion's 10 ms, and 5 ms more. The last of the tries tells."""
    told = [breaker.record_run(seconds, champion_s=0.010) for _ in range(LEAST_TRIES)]
    assert breaker.open == opens
    assert told == [False] * (LEAST_TRIES - 1) + [opens]


def test_half_of_the_tries_are_enough_and_fewer_are_not(breaker):
    """As good as the last one is."""
    for number in range(2 * LEAST_TRIES):
        breaker.record(bad=number % 5 < 2)
    assert not breaker.open
    for _ in range(8):
        breaker.record(bad=True)
    assert breaker.open


def test_few_tries_say_nothing(breaker, clock):
    """Fewer than 20 in ten seconds, all of them bad, for ever."""
    for _ in range(5 * LEAST_TRIES):
        breaker.record(bad=True)
        clock.now_s += WINDOW_S / (LEAST_TRIES - 2)
    assert not breaker.open


def test_it_closes_after_its_pause_and_counts_anew(breaker, clock):
    """What ends late, of the time before, does not count either."""
    for _ in range(LEAST_TRIES):
        breaker.record(bad=True)
    clock.now_s += PAUSE_S - 0.1
    assert breaker.open
    assert not breaker.record(bad=True)
    clock.now_s += 0.2
    assert not breaker.open
    for _ in range(LEAST_TRIES - 1):
        breaker.record(bad=True)
    assert not breaker.open
    assert breaker.record(bad=True)
    assert breaker.open


def test_many_tries_are_forgotten_in_order(breaker):
    """It keeps a thousand; the bad ones among those that it forgot do not count."""
    for _ in range(900):
        breaker.record(bad=False)
    for _ in range(400):
        breaker.record(bad=True)
    for _ in range(900):
        breaker.record(bad=False)
    assert not breaker.open
    for _ in range(499):
        breaker.record(bad=True)
    assert not breaker.open
    breaker.record(bad=True)
    assert breaker.open
