"""How progress is drawn, on a terminal and in a log."""

import io

import pytest

from service.history_import.progress import Progress, describe_seconds


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_gets_a_bar_over_itself(clock):
    """Share, events, rate and time left, a few times a second; at the end the line is free again."""
    stream = Terminal()
    progress = Progress("Importing", stream, clock=clock)
    progress.show(0.1, 10)
    assert stream.getvalue() == ""
    clock.now_s += 2
    progress.show(0.25, 100_000)
    progress.show(0.26, 100_001)
    assert stream.getvalue() == (
        "\rImporting [######..................]  25 %  100,000 events, 50,000/s, 6 s left\x1b[K"
    )
    clock.now_s += 1
    assert progress.end() == 3
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_log_gets_a_line_now_and_then(clock):
    """Without control characters, and none for what is quick."""
    stream = io.StringIO()
    progress = Progress("Reading", stream, clock=clock)
    for _ in range(21):
        progress.show(0.5, 1)
        clock.now_s += 1
    progress.end()
    assert stream.getvalue().count("\n") == 2
    assert "\r" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (125, "2 min 5 s"), (3725, "1 h 2 min"), (-1, "0 s")]
)
def test_times_are_said_as_people_say_them(seconds, words):
    """Never more than two units."""
    assert describe_seconds(seconds) == words
