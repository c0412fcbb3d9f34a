"""How quickly this project, RecTools and RecBole train one BERT4Rec on one log, turn by turn.

`make bench-training DATA=FOLDER` makes the peers' environments and runs it; docs/lab/training-speed.md says what is
counted. The results are written after every turn, so that Ctrl-C loses only the turn under way.
"""

import argparse
import shlex
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness.machine import describe_machine
from benchmarks.training.picture import draw_paces
from benchmarks.training.rounds import OURS, PEERS, Missing, TurnFailed, find_interpreters, plan_turns, run_turn
from benchmarks.training.summary import format_summary, summarize
from benchmarks.training.terms import Terms, cut_material, write_task
from model.contract.atomic_files import write_whole
from training.data.split import leave_one_out
from training.environment import describe_environment
from training.errors import TrainingError
from training.json_files import write_json
from training.logs.reader import read_log
from training.recipe import DataRecipe

_INTERRUPTED = 130


def main() -> int:
    """Run all turns. 0: done, 2: something is missing, 1: a system failed, 130: stopped."""
    options = _make_parser().parse_args()
    try:
        interpreters = find_interpreters(
            options.log, options.environments, [OURS, *options.peers], target="bench-training"
        )
    except Missing as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="bench-training-") as folder:
            return _run(options, interpreters, Path(folder))
    except (TrainingError, TurnFailed) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped; the turns that ended are in {options.out}\n")
        return _INTERRUPTED


def _run(options: argparse.Namespace, interpreters: dict[str, Path], folder: Path) -> int:
    terms = Terms(
        threads=options.threads,
        seconds=options.seconds,
        max_length=options.max_length,
    )
    log = read_log(options.log, DataRecipe())
    material = cut_material(
        leave_one_out(log), len(log.vocabulary), max_length=terms.max_length, users=0, seed=terms.seed
    )
    write_task(folder, terms, material)
    words = [options.log.name if word == str(options.log) else word for word in sys.argv[1:]]  # no folder of the reader
    document: dict[str, Any] = {
        "command": shlex.join([Path(sys.executable).name, "-m", "benchmarks.training", *words]),
        "began_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
        "environment": describe_machine() | describe_environment(torch.device("cpu")) | {"threads": terms.threads},
        "terms": vars(terms).copy(),
        "log": {
            "file": options.log.name,
            "fingerprint": log.fingerprint,
            "users": len(material.train),
            "items": material.item_count,
            "trained_events": int(material.train.lengths.sum()),
        },
        "turns": [],
    }
    roster = plan_turns(options.peers, options.rounds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for number, name in enumerate(roster, 1):
            task = progress.add_task(f"{name}, turn {number} of {len(roster)}: prepares", total=terms.seconds)

            def show(line: dict[str, Any]) -> None:
                progress.update(
                    task,  # noqa: B023 - called within this turn only
                    completed=line["seconds"],
                    description=f"{name}, turn {number} of {len(roster)}",  # noqa: B023
                )

            turn = run_turn(name, interpreters[name], folder, threads=terms.threads, on_line=show)
            progress.remove_task(task)
            document["turns"].append(turn)
            _write(document, options.out)
            console.print(
                f"turn {number} of {len(roster)}: {name:<10} {turn['tokens']:>9,} tokens, {turn['seconds']:6.1f} s, "
                f"{turn['cpu_seconds']:6.1f} CPU s",
                highlight=False,
            )
    sys.stdout.write(format_summary(document["summary"]))
    return 0


def _write(document: dict[str, Any], out: Path) -> None:
    """The results so far, whole, and their picture beside them."""
    document["summary"] = summarize(document["turns"])
    write_json(out, document)
    write_whole(out.with_suffix(".png"), draw_paces(document))


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", type=Path, help="an interaction log that nextitem-train reads")
    parser.add_argument("--environments", type=Path, default=Path(".cache/peers"), help="folder of the environments")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS, help="who takes part beside us")
    parser.add_argument("--threads", type=int, default=1, help="threads of each system; needs as many idle cores")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training in a turn")
    parser.add_argument(
        "--rounds", type=int, default=3, help="each with a turn of every peer, and one of ours before it"
    )
    parser.add_argument("--max-length", type=int, default=200, help="N; users' newest N training items are the data")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results/training.json"), help="and a .png beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
