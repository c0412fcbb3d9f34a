"""The parent-death signal: a process ends with its parent, however the parent ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.system import parent_death

WAIT_S = 120.0
POLLED = "from service.system import parent_death; parent_death._HAS_PRCTL = False; parent_death.POLL_S = 0.05;"
SLEEPER = "import time; print('up', flush=True); time.sleep(60)"

linux = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


@pytest.fixture
def orphan():
    """Start a parent that starts a child, kill -9 the parent once both are up, and give the child's pid."""
    with contextlib.ExitStack() as stack:

        def make(child_code):
            parent_code = (
                "import os, subprocess, sys\n"
                "child = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE)\n"
                "child.stdout.readline()\n"
                "print(child.pid, flush=True)\n"
                "child.wait()"
            )
            parent = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", parent_code, *child_code], stdout=subprocess.PIPE, text=True)
            )
            assert parent.stdout
            pid = int(parent.stdout.readline())
            stack.callback(_end, pid)
            assert _is_running(pid)
            parent.kill()
            parent.wait()
            return pid

        yield make


def _is_running(pid):
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def _end(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _ends(pid):
    deadline_s = time.monotonic() + WAIT_S
    while _is_running(pid) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return not _is_running(pid)


@pytest.mark.parametrize("how", [pytest.param("", id="prctl", marks=linux), pytest.param(POLLED, id="polled")])
def test_a_tied_process_ends_with_its_parent(orphan, how):
    """SIGKILL to the parent ends a child that tied itself, by the kernel or by polling."""
    tie = "import signal; from service.system.parent_death import tie_to_parent; tie_to_parent(signal.SIGTERM);"
    assert _ends(orphan(["-c", how + tie + SLEEPER]))


def test_an_untied_process_outlives_its_parent(orphan):
    """Without the parent-death signal the child would live on: the tests above can fail."""
    pid = orphan(["-c", SLEEPER])
    time.sleep(0.3)
    assert _is_running(pid)


def test_a_tied_process_gets_the_signal_asked_for(orphan, tmp_path):
    """The parent's death arrives as the very signal named, so that a worker may finish its work."""
    note = tmp_path / "note"
    code = (
        "import pathlib, signal, sys, time; from service.system.parent_death import tie_to_parent\n"
        f"note = lambda number, _: (pathlib.Path({str(note)!r}).write_text(str(number)), sys.exit(0))\n"
        "signal.signal(signal.SIGUSR1, note); tie_to_parent(signal.SIGUSR1)\n"
    )
    assert _ends(orphan(["-c", code + SLEEPER]))
    assert note.read_text() == str(int(signal.SIGUSR1))


def test_a_parent_already_gone_is_noticed():
    """A process whose parent died before the tie gets the signal at once."""
    code = (
        "import signal; from service.system.parent_death import tie_to_parent; tie_to_parent(signal.SIGTERM, 1 << 22);"
    )
    ended = subprocess.run([sys.executable, "-c", code + SLEEPER], check=False, capture_output=True, timeout=WAIT_S)
    assert ended.returncode == -signal.SIGTERM
    assert ended.stdout == b""


@linux
@pytest.mark.parametrize(
    "start", [[parent_death.__file__], ["-m", "service.system.parent_death"]], ids=["path", "module"]
)
def test_it_becomes_the_binary(start):
    """Run by path or as a module, it turns into the binary with its arguments, under the same pid."""
    command = [sys.executable, *start, str(os.getpid()), "/bin/sh", "-c", "echo $$ $0 $1", "a b", "c"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=WAIT_S)[0] == f"{process.pid} a b c\n"


@linux
def test_it_starts_nothing_for_a_parent_already_gone():
    """When the parent named is not the parent, the binary is never run."""
    command = [sys.executable, parent_death.__file__, "1", "/bin/echo", "ran"]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=WAIT_S)
    assert (ended.returncode, ended.stdout) == (1, b"")


@linux
def test_the_binary_ends_with_the_parent(orphan):
    """The tie outlasts the exec: the binary itself gets SIGTERM."""
    starter = (
        "import os, sys; from service.system import parent_death;"
        "sys.exit(parent_death.main([str(os.getppid()), sys.executable, '-c', sys.argv[1]]))"
    )
    assert _ends(orphan(["-c", starter, SLEEPER]))


def test_without_prctl_a_wrapper_process_holds_the_binary(orphan, tmp_path):
    """Elsewhere the wrapper stays, and ends the binary and itself when its parent dies."""
    note = tmp_path / "pid"
    binary = f"import os, pathlib; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); {SLEEPER}"
    starter = (
        POLLED + "import os, sys; sys.exit(parent_death.main([str(os.getppid()), sys.executable, '-c', sys.argv[1]]))"
    )
    pid = orphan(["-c", starter, binary])
    assert _ends(pid)
    assert int(note.read_text()) != pid
    assert _ends(int(note.read_text()))


def test_a_held_binary_gets_sigterm_and_gives_its_status():
    """SIGTERM to the wrapper goes to the binary; the wrapper ends when the binary does."""
    starter = (
        POLLED + f"import os, sys; sys.exit(parent_death.main([str(os.getppid()), sys.executable, '-c', {SLEEPER!r}]))"
    )
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(WAIT_S) != 0


def test_it_needs_nothing_but_the_standard_library():
    """Run in isolation, without site-packages, parent_death imports: it starts fast and from anywhere."""
    command = [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), "/bin/echo", "ran"]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=WAIT_S, cwd="/")
    assert ended.stdout == b"ran\n"
