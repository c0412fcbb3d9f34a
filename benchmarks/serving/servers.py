"""Systems as processes: start them on free ports, wait for the first answer, and stop them by their ids."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.closed_loop import Connect, Judge, ask_once, connect_tcp
from benchmarks.harness.cpu_time import list_family
from benchmarks.serving.systems.orders import MODEL_VARIABLE, STORE_VARIABLE, Batching
from service.system import parent_death

START_LIMIT_S = 180.0
STOP_LIMIT_S = 15.0
_ROOT = Path(__file__).parents[2]
_TAIL = 12
_QUIET = {"ORT_DISABLE_TELEMETRY": "1", "BENTOML_DO_NOT_TRACK": "True"}
"""Turn off telemetry of the frameworks."""


class ServerFailed(Exception):
    """A system does not answer; the message holds the end of what it wrote."""


@dataclass(frozen=True)
class Setting:
    """What a system is started over."""

    model: Path
    """The folder of a case."""
    store: str
    """URL of the store."""
    port: int
    environments: Path
    """The folder of the peers' environments."""
    batching: Batching | None = None
    """Batching of a framework; None for other systems."""


@dataclass(frozen=True)
class Server:
    """A system that answers."""

    process_id: int
    connect: Connect
    start_s: float = 0.0
    """From its start to its first good answer."""

    def freeze(self) -> None:
        """Keep it from running: some poll while there is nothing to do, and would take from those who are measured."""
        _signal(list_family(self.process_id), signal.SIGSTOP)

    def thaw(self) -> None:
        _signal(list_family(self.process_id), signal.SIGCONT)


@contextlib.contextmanager
def serve(
    make_command: Callable[[Setting], Sequence[str]], setting: Setting, *, log: Path, probe: bytes, judge: Judge
) -> Iterator[Server]:
    """Run a command until the block ends. Raises ServerFailed when it does not answer the probe."""
    environment = os.environ | _QUIET | {
        "PYTHONPATH": str(_ROOT),
        MODEL_VARIABLE: str(setting.model.resolve()),
        STORE_VARIABLE: setting.store,
    }  # fmt: skip
    command = [sys.executable, parent_death.__file__, str(os.getpid()), *make_command(setting)]
    began_s = time.monotonic()
    with log.open("wb") as said:
        # A session of its own, so that a terminal's Ctrl-C reaches it through us alone.
        process = subprocess.Popen(  # noqa: S603 - commands of ours
            command, cwd=_ROOT, env=environment, stdout=said, stderr=said, start_new_session=True
        )
    try:
        connect = connect_tcp(setting.port)
        _await_answer(process, connect, probe, judge, log)
        yield Server(process.pid, connect, time.monotonic() - began_s)
    finally:
        _stop(process)


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_answer(process: "subprocess.Popen[bytes]", connect: Connect, probe: bytes, judge: Judge, log: Path) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    answer = b""
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            good, answer = ask_once(connect, probe, judge)
            if good:
                return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:])
    last = answer[:500].decode(errors="replace")
    raise ServerFailed(f"{log.stem} does not answer as it must: {last!r}\n{tail}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """In order, then by force: whatever it has left behind as well."""
    family = list_family(process.pid)
    _signal(family, signal.SIGCONT)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT_S)
    _signal([member for member in family if member != process.pid or process.poll() is None], signal.SIGKILL)
    process.wait()


def _signal(family: Sequence[int], number: signal.Signals) -> None:
    for member in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, number)
