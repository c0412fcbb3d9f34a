"""What the store's tests share: a clock that moves when it is told to."""

import pytest


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now_s = 5000.0

    def __call__(self):
        """Its time."""
        return self.now_s


@pytest.fixture(scope="session")
def make_clock():
    """A maker of clocks."""
    return Clock


@pytest.fixture
def clock(make_clock):
    """The time of a test."""
    return make_clock()
