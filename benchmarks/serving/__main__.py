"""The service, a textbook handler, LitServe, BentoML and empty endpoints, under load from the same machine.

`make bench` makes the peers' environments and runs it; docs/lab/serving-speed.md says what is counted. Results
are written after every turn: Ctrl-C loses none of them, and ends every process.
"""

import argparse
import gc
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness.cases import CASES, Case, read_case
from benchmarks.harness.machine import describe_machine
from benchmarks.serving.events import compare_events
from benchmarks.serving.material import draw_histories, write_network
from benchmarks.serving.matrix import Matrix, start_systems
from benchmarks.serving.picture import draw_latencies
from benchmarks.serving.proof import AnswersDiffer
from benchmarks.serving.roster import PEERS, System, find_python, list_systems
from benchmarks.serving.rounds import Plan, Turn
from benchmarks.serving.servers import ServerFailed
from benchmarks.serving.stored import open_store
from benchmarks.serving.summary import format_start, format_summary, summarize, summarize_events
from model.contract.atomic_files import write_whole
from service.errors import StartFailed
from training.environment import describe_environment
from training.json_files import write_json

_INTERRUPTED = 130
_LOADS = ("events", "closed", "open")
_KINDS = tuple(dict.fromkeys(each.kind for each in list_systems()))
_PACKAGES = (
    "fastapi",
    "hiredis",
    "httptools",
    "numpy",
    "onnxruntime",
    "orjson",
    "pydantic",
    "redis",
    "uvicorn",
    "uvloop",
)


def main() -> int:
    """Run all cases. 0: done, 1: a system failed, 2: something is missing, 130: stopped."""
    options = _make_parser().parse_args()
    roster = [each for each in list_systems() if each.kind in options.systems and each.workers in options.workers]
    missing = [path for name in PEERS if name in options.systems if not (path := _find(options, name)).is_file()]
    if missing:
        sys.stderr.write(f"no {' and no '.join(map(str, missing))}: `make bench` makes the environments\n")
        return 2
    signal.signal(signal.SIGTERM, _stop)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-serving-") as logs:
            _run(options, roster, Path(logs))
    except (ServerFailed, AnswersDiffer, StartFailed, TimeoutError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped; the turns that ended are in {options.out}\n")
        return _INTERRUPTED
    return 0


def _run(options: argparse.Namespace, roster: Sequence[System], logs: Path) -> None:
    torch.set_num_threads(1)
    plan = Plan(
        rounds=options.rounds,
        seconds=options.seconds,
        connections=options.connections,
        environments=options.environments,
    )
    document = _describe_run(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    # Drawn between turns only: the generator shares its process with nobody.
    with Progress(console=console, transient=True, auto_refresh=False, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def announce(words: str, done: int | None = None, total: int | None = None) -> None:
            progress.update(task, description=words, completed=done, total=total, refresh=True)

        bench = _Bench(options, roster, plan, logs, document, announce)
        if "events" in options.loads:
            bench.compare_events()
        for case in options.cases if {"closed", "open"} & set(options.loads) else ():
            bench.compare_answers(case)


def _describe_run(options: argparse.Namespace) -> dict[str, Any]:
    folders = {str(options.environments): "ENVIRONMENTS", str(options.cache): "CACHE", str(options.out): "OUT"}
    given = [folders.get(word, word) for word in sys.argv[1:]]  # no folder of the reader
    return {
        "command": shlex.join([Path(sys.executable).name, "-m", "benchmarks.serving", *given]),
        "began_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
        "environment": describe_machine()
        | describe_environment(torch.device("cpu"))
        | {package: version(package) for package in _PACKAGES},
        "generator": "on the same machine",
        "terms": {
            **{name: getattr(options, name) for name in ("rounds", "seconds", "connections", "users")},
            "contestants": options.systems,
            "workers": options.workers,
        },
        "cases": [],
    }


@dataclass(frozen=True)
class _Bench:
    """What all comparisons of a run share. `document` is written after every turn."""

    options: argparse.Namespace
    roster: Sequence[System]
    plan: Plan
    logs: Path
    document: dict[str, Any]
    announce: Callable[..., None]
    """Shows words and, if there are any, how much of how much is done."""

    def compare_events(self) -> None:
        folder = write_network(self.options.cases[0], self.options.cache, announce=self.announce)
        turns: list[Any] = []
        for turn in compare_events(self.roster, folder, self.plan, logs=self.logs, announce=self.announce):
            turns.append(turn)
            self.document["events"] = {"turns": turns, "summary": summarize_events(turns)}
            write_json(self.options.out, self.document)
            self.announce(f"/events: round {turn['round'] + 1} of {self.plan.rounds}, {turn['contestant']}")
        _say("POST /events, one event a request, fsync always", self.document["events"]["summary"])

    def compare_answers(self, case: Case) -> None:
        options, announce = self.options, self.announce
        folder = write_network(case, options.cache, announce=announce)
        histories = draw_histories(case, options.users)

        def show_stored(done: int, total: int) -> None:
            announce(f"N={case.max_length}: users are stored", done, total)

        with (
            open_store(case, options.users, options.cache, progress=show_stored) as store,
            start_systems(
                self.roster, store, folder, histories, self.plan, logs=self.logs, announce=announce
            ) as matrix,
        ):
            started = matrix.describe()
            _write(f"{case}\n{format_start(started)}")
            offered = options.histories[:1] if "open" in options.loads else []
            for kind in options.histories:
                entry: dict[str, Any] = {"case": case._asdict(), "histories": kind, **started, "turns": []}
                self.document["cases"].append(entry)
                gc.collect()
                gc.freeze()  # what stays need not be looked through while somebody is measured
                for turn in _take_turns(matrix, histories[kind], entry["turns"], open_loop=kind in offered):
                    entry["turns"].append(turn)
                    entry["summary"] = summarize(entry["turns"])
                    write_json(options.out, self.document)
                    words = f"{case}, {kind}: round {turn['round'] + 1} of {self.plan.rounds}, {turn['load']} loop, "
                    announce(words + turn["contestant"])
                write_whole(options.out.with_suffix(".png"), draw_latencies(self.document))
                _say(f"{case}, {kind} windows", entry["summary"])


def _take_turns(
    matrix: Matrix, histories: Mapping[str, list[str]], turns: Sequence[Turn], *, open_loop: bool
) -> Iterator[Turn]:
    yield from matrix.run_closed(histories)
    if open_loop:
        yield from matrix.run_open(histories, turns)


def _say(words: str, summary: Mapping[str, Any]) -> None:
    _write(f"{words}; the load comes from the same machine\n{format_summary(summary)}\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _find(options: argparse.Namespace, name: str) -> Path:
    return Path(find_python(options.environments, name))


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _read_count(text: str) -> int:
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 at least")
    return count


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", type=read_case, default=CASES, help="each as N,items,D")
    parser.add_argument("--histories", nargs="*", choices=("full", "mixed"), default=["full", "mixed"])
    parser.add_argument(
        "--systems", "--contestants", nargs="*", choices=_KINDS, default=_KINDS, help="the systems under test"
    )
    parser.add_argument("--workers", nargs="*", type=int, default=[1, 2], help="of those that can have several")
    parser.add_argument(
        "--loads",
        nargs="*",
        choices=_LOADS,
        default=_LOADS,
        help="open loops need closed ones, and take the first of --histories",
    )
    parser.add_argument("--rounds", type=_read_count, default=5, help="rounds; each has a turn of every system")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--connections", type=int, default=16, help="of a closed loop")
    parser.add_argument(
        "--users", type=int, default=10_000, help="with mixed histories; a tenth as many have full ones"
    )
    parser.add_argument("--environments", type=Path, default=Path(".cache/peers"), help="folder of the environments")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench-serving"), help="folder of networks, stores")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results/serving.json"), help="and a .png beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
