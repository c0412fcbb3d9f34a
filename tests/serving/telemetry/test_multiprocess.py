"""What several workers count adds up, also after some of them died, in a number of files that does not grow."""

import subprocess
import sys
import threading

import pytest

from service.telemetry.metrics import Metrics
from service.telemetry.multiprocess import lock_readers, make_metrics_folder, merge_dead_workers

WORKER = """
import os
from service.telemetry.metrics import Metrics
from service.telemetry.stage_timer import StageTimer

metrics = Metrics(event_types=["view"], model_version="v", routes=[("/model", "GET")])
metrics.queue_changed(3)
for number in range(10):
    metrics.answered(source="popular", degraded="deadline", version="v", variant="champion")
    metrics.event_handled(event_type="view", result="accepted")
    metrics.request_ended(route="/model", method="GET", code=200, timer=StageTimer())
metrics.flush()
print(os.getpid(), flush=True)
"""
PROCESS_GAUGES = {
    f"nextitem_process_{name}" for name in ("resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds")
}


@pytest.fixture
def folder(monkeypatch):
    """A folder as a service with several workers has it; this process reads it."""
    with make_metrics_folder() as folder:
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
        yield folder


def run_worker():
    """The process id of a worker that has counted, and ended."""
    return int(subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True).stdout)


def read():
    """Samples by name."""
    exposed = Metrics(event_types=["view"], model_version="v", routes=[]).expose().decode()
    samples = dict(line.rsplit(" ", 1) for line in exposed.splitlines() if line[0] != "#")
    return {name: float(value) for name, value in samples.items()}


@pytest.mark.usefixtures("folder")
def test_named_samples_of_all_workers():
    """What is asked for by name is what all metrics have of it: counts, buckets, gauges and old names."""
    for _ in range(2):
        run_worker()
    names = {"nextitem_events_total", "nextitem_http_request_duration_seconds_bucket", "nextitem_queue_depth"}
    names |= {"nextitem_fallback_total"}
    metrics = Metrics(event_types=["view"], model_version="v", routes=[])
    named = [line for line in metrics.expose(names).decode().splitlines() if line[0] != "#"]
    whole = [line for line in metrics.expose().decode().splitlines() if line[0] != "#"]
    assert {line.partition("{")[0].partition(" ")[0] for line in named} == names
    assert sorted(named) == sorted(line for line in whole if line.partition("{")[0].partition(" ")[0] in names)


def test_the_dead_still_count_in_two_files(folder):
    """Three workers die: no count goes back, which Prometheus would take for a restart, and no gauge lives on."""
    cpu_s = 0.0
    for deaths in range(1, 4):
        pid = run_worker()
        before = read()
        assert before["nextitem_queue_depth"] == 3
        merge_dead_workers({pid}, folder)
        assert read() == before  # it lives
        merge_dead_workers(set(), folder)
        assert {file.name for file in folder.glob("*.db")} == {"counter_dead.db", "histogram_dead.db"}
        after = read()
        assert after['nextitem_events_total{result="accepted",type="view"}'] == 10 * deaths
        route = 'code="200",method="GET",route="/model"'
        assert after[f"nextitem_http_request_duration_seconds_count{{{route}}}"] == 10 * deaths
        for name in ("nextitem_fallbacks_total", "nextitem_fallback_total"):  # the second is the old name
            assert after[f'{name}{{reason="deadline"}}'] == 10 * deaths
        assert after.get("nextitem_queue_depth", 0) == 0
        for gauge in ("nextitem_queue_depth", *(name for name in before if name in PROCESS_GAUGES)):
            assert after.pop(gauge, 0) == 0
            del before[gauge]
        assert {name: value for name, value in after.items() if value} == {
            name: value for name, value in before.items() if value
        }
        assert after["nextitem_process_cpu_seconds_total"] > cpu_s
        cpu_s = after["nextitem_process_cpu_seconds_total"]


@pytest.mark.parametrize("content", [b"", b"\0" * 10, b"\xff" * 100])
def test_a_worker_that_died_at_its_start_is_buried(folder, content):
    """A file that is not whole has nothing to keep, and is no error."""
    (folder / "counter_12345.db").write_bytes(content)
    merge_dead_workers(set(), folder)
    assert {file.name for file in folder.glob("*.db")} <= {"counter_dead.db"}
    assert read().get('nextitem_events_total{result="accepted",type="view"}', 0) == 0


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
    """Or somebody would count them twice. Nobody waits for a reader, which may hang: the next turn tries again."""
    (folder / "counter_12345.db").touch()
    with lock_readers(folder, alone=False):
        with pytest.raises(BlockingIOError):
            merge_dead_workers(set(), folder)
        assert (folder / "counter_12345.db").exists()
    merge_dead_workers(set(), folder)
    assert not (folder / "counter_12345.db").exists()
