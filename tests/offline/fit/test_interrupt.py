"""Ctrl-C: the first asks, the second stops."""

import os
import signal

import pytest

from training.fit.interrupt import Interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_stops(number):
    """One signal is only noted, another one raises at once, and afterwards the old handlers are back."""
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        assert not interrupt.is_asked()
        os.kill(os.getpid(), number)
        assert interrupt.is_asked()
        assert interrupt.received == number
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
