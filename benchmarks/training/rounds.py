"""Measure the systems round by round. Each turn is a process in the system's own environment."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

OURS = "nextitem"
PEERS = ("rectools", "recbole")

_ROOT = Path(__file__).parents[2]
_TAIL = 12


class TurnFailed(Exception):
    """A system ended without a result; the message holds the end of what it wrote."""


class Missing(Exception):
    """A file that the comparison needs is not there; the message says how to get it."""


def find_interpreters(log: Path, environments: Path, systems: Sequence[str], target: str) -> dict[str, Path]:
    """Python in each system's environment, by name. Raises Missing, which names the make target that makes them."""
    found = {name: Path(sys.executable) if name == OURS else environments / name / "bin" / "python" for name in systems}
    missing = [str(path) for path in [log, *found.values()] if not path.is_file()]
    if missing:
        raise Missing(
            f"no {' and no '.join(missing)}: `make {target} DATA=FOLDER` makes the environments; FOLDER holds "
            "ml-1m/ml-1m.txt.gz, which is no part of the project (docs/reference/protocols.md)"
        )
    return found


def plan_turns(peers: Sequence[str], rounds: int) -> list[str]:
    """Ours before each peer, so that every peer's turn has one of ours right beside it on a machine that others use."""
    return [name for _ in range(rounds) for peer in peers for name in (OURS, peer)] if peers else [OURS] * rounds


def run_turn(
    name: str, python: Path, task: Path, *, threads: int, on_line: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run one turn to its end. Returns its last line. Raises TurnFailed; takes the process along when interrupted."""
    command = [str(python), "-m", f"benchmarks.training.systems.{name}", str(task.resolve())]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    said = task / f"{name}.log"
    with said.open("wb") as log:
        process = subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - ours
        with process:
            try:
                last = _follow(process, on_line)
            except BaseException:
                process.terminate()
                raise
    if process.returncode or last.get("event") != "end":
        tail = "\n".join(said.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:])
        raise TurnFailed(f"{name} ended with status {process.returncode} and no result; {said} ends with\n{tail}")
    return last


def _follow(process: "subprocess.Popen[str]", on_line: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    last: dict[str, Any] = {}
    for line in process.stdout or ():
        if line.startswith("{"):
            last = json.loads(line)
            on_line(last)
    return last
