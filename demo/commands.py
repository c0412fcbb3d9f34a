"""The two commands as a user runs them: each in a process of its own, the service for as long as the demo lasts."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import httpx
from rich.console import Console

START_SECONDS = 60
STOP_SECONDS = 45
"""More than the service may take to finish what is under way and to stop its store."""
INTERRUPTED = 130
THREADS = {"OMP_NUM_THREADS": "1"}
"""Unless the user says otherwise. Batches as small as the demo's gain next to nothing from a second thread, and beside
busy processes two threads wait for each other (docs/lab/2026-11-23-demo-in-three-minutes.md)."""

console = Console(highlight=False)


class DemoFailed(Exception):
    """A step of the demo failed; the message says why."""


def head(number: int, text: str) -> None:
    """Print the heading of a step."""
    console.print(f"\n[bold cyan]{number}[/]  [bold]{text}[/]")


def end_in_order(work: Callable[[], object], *, interrupted: int = 0) -> int:
    """Do the work of a command. Returns the exit status: 0, 1 after DemoFailed, `interrupted` when stopped."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(interrupted))  # unwinds: what was started is stopped, too
    try:
        work()
    except DemoFailed as error:
        console.print(f"[bold red]The demo failed:[/] {error}", markup=True)
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped. Nothing is left running.")
        return interrupted
    return 0


def train(*arguments: str, refused: Mapping[int, str] | None = None) -> None:
    """Run nextitem-train and show what it prints. Raises DemoFailed when it fails, KeyboardInterrupt when stopped.

    `refused` says what exit statuses mean that the command has for a result that is not good enough.
    """
    _run("nextitem-train", *arguments, refused=refused or {})


def manage(*arguments: str) -> None:
    """Run a sub-command of nextitem-serve, such as `models`, and show what it prints. Raises as `train` does."""
    _run("nextitem-serve", *arguments)


def ask(*arguments: str) -> str:
    """What a sub-command of nextitem-serve prints. Raises DemoFailed when it fails."""
    return _read("nextitem-serve", *arguments)


def ask_trainer(*arguments: str) -> str:
    """What a command of nextitem-train prints. Raises DemoFailed when it fails."""
    return _read("nextitem-train", *arguments)


@contextmanager
def hold(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a lock of the commands. Raises DemoFailed with a sentence where another process does."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoFailed(otherwise) from error
        yield


def read_key(file: Path) -> str:
    """A key to the service. Raises DemoFailed."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DemoFailed(f"{file} cannot be read as a key") from error


def _read(command: str, *arguments: str) -> str:
    words = [_find(command), *arguments]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, env=THREADS | os.environ)  # noqa: S603 - ours
    if done.returncode:
        raise DemoFailed(f"{command} {' '.join(arguments[:2])} ended with status {done.returncode}")
    return done.stdout


def _run(command: str, *arguments: str, refused: Mapping[int, str] = MappingProxyType({})) -> None:
    process = subprocess.Popen([_find(command), *arguments], env=THREADS | os.environ)  # noqa: S603 - ours
    try:
        status = process.wait()
    except KeyboardInterrupt:
        process.wait()  # Ctrl-C reached it, too: it saves what it has
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status in refused:
        raise DemoFailed(refused[status])
    if status:
        raise DemoFailed(f"{command} {' '.join(arguments[:2])} ended with status {status}")


@contextmanager
def serve(bundles: Path, store: Path, port: int, log: Path, *options: str) -> Iterator[httpx.Client]:
    """Run nextitem-serve on 127.0.0.1 and give a client of it; stop it at the end, whatever happens."""
    url = f"http://127.0.0.1:{port}"
    # A parent-death signal ends the service when this process is killed and cannot.
    parent_death = [sys.executable, "-m", "service.system.parent_death", str(os.getpid())]
    arguments = ["--bundle", str(bundles), "--data-dir", str(store), "--port", str(port), *options]
    with log.open("wb") as output:
        # Its own session: Ctrl-C reaches the demo alone, which then stops the service in order.
        process = subprocess.Popen(  # noqa: S603 - ours
            [*parent_death, _find("nextitem-serve"), *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with httpx.Client(base_url=url, timeout=10) as client:
            _wait_until_ready(client, process, log)
            yield client
    finally:
        process.terminate()
        try:
            status = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise DemoFailed(f"the service did not stop within {STOP_SECONDS} s of SIGTERM") from None
    if status:
        raise DemoFailed(f"the service ended with status {status}: see {log}")


def _find(command: str) -> str:
    """A command of the environment that the demo runs in."""
    return str(Path(sys.executable).with_name(command))


def _wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-3:]
            raise DemoFailed("the service did not start:\n  " + "\n  ".join(last))
        try:
            if client.get("/health/ready").json()["status"] == "ok":
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise DemoFailed(f"the service was not ready within {START_SECONDS} s: see {log}")
