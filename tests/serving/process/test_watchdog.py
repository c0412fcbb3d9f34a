"""A process whose event loop hangs ends; one that was only stopped for a while does not."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import logging, sys, threading, time
from service.telemetry.logs import configure_logs
from service.process.watchdog import Watchdog

configure_logs("info")
watchdog = Watchdog(0.5, check_every_s=0.1)
watchdog.start()
print("begun", flush=True)
def hang():
    time.sleep(60)
def turn(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        watchdog.beat()
        time.sleep(0.02)
"""


@pytest.fixture
def begin():
    """Start a process with a watchdog that waits half a second, and what its loop does then."""
    started = []

    def begin(rest):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + rest], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_a_hung_loop_ends_its_process_and_leaves_its_stacks(begin):
    """Status 1, and one line of the log that names the function in which it hangs, though nothing cleans up."""
    process = begin("turn(0.3); hang()")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    [line] = map(json.loads, stderr.splitlines())
    assert line["level"] == "critical"
    assert line["threads"]["MainThread"][-1].endswith(" hang")


def test_a_lock_that_the_hung_thread_holds_does_not_save_it(begin):
    """It hangs while it writes its log, as into a pipe that nobody reads: it ends without a word."""
    process = begin("logging.getLogger().handlers[0].acquire(); hang()")
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (1, "")


@pytest.mark.parametrize("rest", ["turn(2)", "watchdog.stop(); time.sleep(2)"])
def test_a_loop_that_turns_or_is_about_to_end_is_left_alone(begin, rest):
    """Four times its patience pass."""
    process = begin(rest)
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, "")


def test_a_process_that_was_stopped_wakes_up_alive(begin):
    """SIGSTOP for longer than its patience, as a debugger does: none of that time is held against it."""
    process = begin("turn(4)")
    for _ in range(2):
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.1)
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, "")
