"""What several workers count adds up, also after some of them died, in a number of files that does not grow."""

import os
import subprocess
import sys
import threading

import pytest

from service.metrics import Metrics
from service.metrics_folder import bury_dead, lock_readers, make_metrics_folder

WORKER = """
import os
from service.metrics import Metrics
from service.stopwatch import Stopwatch

metrics = Metrics(event_types=["view"], model_version="v", routes=[("/model", "GET")])
metrics.queue_changed(3)
for number in range(10):
    metrics.event_handled(event_type="view", result="accepted")
    metrics.request_ended(route="/model", method="GET", code=200, stopwatch=Stopwatch())
metrics.settle()
print(os.getpid(), flush=True)
"""
READER = """
import sys
from service.metrics import Metrics

sys.stdout.buffer.write(Metrics(event_types=["view"], model_version="v", routes=[]).expose())
"""


@pytest.fixture
def folder():
    """A folder as a service with several workers has it."""
    with make_metrics_folder() as folder:
        yield folder


def run(program, folder):
    """What a program prints that counts in the folder."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout


def read(folder):
    """Samples by name."""
    samples = dict(line.rsplit(" ", 1) for line in run(READER, folder).splitlines() if line[0] != "#")
    return {name: float(value) for name, value in samples.items()}


def test_the_dead_still_count_in_two_files(folder):
    """Three workers die: no count goes back, which Prometheus would take for a restart, and no gauge lives on."""
    for deaths in range(1, 4):
        pid = int(run(WORKER, folder))
        before = read(folder)
        assert before["nextitem_queue_depth"] == 3
        bury_dead({pid}, folder)
        assert read(folder) == before  # it lives
        bury_dead(set(), folder)
        assert {file.name for file in folder.glob("*.db")} == {"counter_dead.db", "histogram_dead.db"}
        after = read(folder)
        assert after['nextitem_events_total{result="accepted",type="view"}'] == 10 * deaths
        route = 'code="200",method="GET",route="/model"'
        assert after[f"nextitem_http_request_duration_seconds_count{{{route}}}"] == 10 * deaths
        assert after.get("nextitem_queue_depth", 0) == 0
        del before["nextitem_queue_depth"], after["nextitem_queue_depth"]
        assert {name: value for name, value in after.items() if value} == {
            name: value for name, value in before.items() if value
        }


@pytest.mark.parametrize("content", [b"", b"\0" * 10, b"\xff" * 100])
def test_a_worker_that_died_at_its_start_is_buried(folder, content):
    """A file that is not whole has nothing to keep, and is no error."""
    (folder / "counter_12345.db").write_bytes(content)
    bury_dead(set(), folder)
    assert {file.name for file in folder.glob("*.db")} <= {"counter_dead.db"}
    assert read(folder)['nextitem_events_total{result="accepted",type="view"}'] == 0


def waits(action):
    """Start something that a lock keeps from going on; what ends it, once the lock is gone."""
    thread = threading.Thread(target=action)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    return thread


def test_the_exposition_waits_for_what_is_moved(folder, monkeypatch):
    """Or it would miss counts, which Prometheus would take for a restart."""
    metrics = Metrics(event_types=["view"], model_version="v", routes=[])
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
    with lock_readers(folder, alone=True):
        reader = waits(metrics.expose)
    reader.join(5)
    assert not reader.is_alive()


def test_counts_are_moved_when_nobody_reads(folder):
    """Or somebody would count them twice."""
    (folder / "counter_12345.db").touch()
    with lock_readers(folder, alone=False):
        mover = waits(lambda: bury_dead(set(), folder))
        assert (folder / "counter_12345.db").exists()
    mover.join(5)
    assert not (folder / "counter_12345.db").exists()


def test_nobody_reads_while_counts_are_moved(folder):
    """A reader in the middle of it would count twice, or not at all."""
    order = []

    def move():
        with lock_readers(folder, alone=True):
            order.append("moved")

    with lock_readers(folder, alone=False):
        mover = waits(move)
        with lock_readers(folder, alone=False):  # readers do not wait for one another
            order.append("read")
    mover.join(5)
    assert order == ["read", "moved"]
