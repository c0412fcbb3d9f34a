"""What a service's log says of where it answers."""

import pytest

from benchmarks.harness.processes import find_url, read_url

STARTED = "Serving tiny 1 on CPUExecutionProvider at http://127.0.0.1:8123, store embedded in /data, workers: 2"


@pytest.mark.parametrize(
    ("message", "url"),
    [
        (STARTED, "http://127.0.0.1:8123"),
        ("Serving the candidate tiny 2", None),
        ("Serving tiny 2 for comparison", None),
        ("Serving look at 3 for comparison", None),
        ("Serving the candidate 2 to all", None),
        ("Loading tiny 1", None),
    ],
)
def test_only_the_line_of_a_start_has_a_url(message: str, url: str | None):
    """A worker that is ready sooner than the others may announce its candidate before the service says where it is."""
    assert read_url(message) == url


def test_a_url_is_found_behind_other_lines_and_not_in_half_a_line():
    """A log that is still being written ends anywhere."""
    lines = b'{"message": "Serving the candidate tiny 2"}\n{"message": "%s"}\n' % STARTED.encode()
    assert find_url(lines) == "http://127.0.0.1:8123"
    assert find_url(lines[:-1]) is None
