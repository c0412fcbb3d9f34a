"""How soon BERT4Rec and SASRec are good, trained by this project, by RecTools and by RecBole.

`make bench-learning DATA=FOLDER` makes the peers' environments and runs it; docs/lab/training-speed.md says what is
counted. What was measured is kept: the same command goes on where Ctrl-C or an error stopped it.
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
from benchmarks.training.learning.kept import Curve, OtherTerms, Results, begin_curve
from benchmarks.training.learning.picture import draw_learning
from benchmarks.training.learning.plan import NETWORKS, Turn, plan_marks, plan_turns
from benchmarks.training.learning.table import format_curves, format_published, name_curve
from benchmarks.training.rounds import OURS, PEERS, Missing, TurnFailed, find_interpreters, run_turn
from benchmarks.training.terms import Material, Terms, cut_material, write_task
from model.contract.atomic_files import write_whole
from training.data.split import leave_one_out
from training.environment import describe_environment
from training.errors import TrainingError
from training.evaluation.metrics import PRIMARY_METRIC
from training.logs.reader import read_log
from training.recipe import DataRecipe

OURS_AND_PEERS = (OURS, *PEERS)
_RECIPES = Path(__file__).parent / "recipes"
_INTERRUPTED = 130


def main() -> int:
    """Measure what is missing. 0: done, 2: something cannot be used, 1: a system failed, 130: stopped."""
    options = _make_parser().parse_args()
    try:
        interpreters = find_interpreters(options.log, options.environments, options.systems, target="bench-learning")
        turns = plan_turns(
            options.networks,
            options.systems,
            sizes=_read_sizes(options),
            recipes={"bert4rec": options.bert4rec, "sasrec": options.sasrec},
        )
        return _measure_all(options, turns, interpreters)
    except (Missing, OtherTerms, TrainingError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except TurnFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _read_sizes(options: argparse.Namespace) -> Terms:
    return Terms(
        max_length=options.max_length,
        width=options.width,
        layers=options.layers,
        heads=options.heads,
        threads=options.threads,
        seed=options.seed,
        marks=plan_marks(options.minutes, options.marks),
    )


def _measure_all(options: argparse.Namespace, turns: list[Turn], interpreters: dict[str, Path]) -> int:
    log = read_log(options.log, DataRecipe())
    material = cut_material(leave_one_out(log), len(log.vocabulary), users=options.users, seed=options.seed)
    results = Results(
        options.out,
        {
            "file": options.log.name,
            "fingerprint": log.fingerprint,
            "users": len(material.train),
            "items": material.item_count,
            "trained_events": int(material.train.lengths.sum()),
            "validation_users": len(material.questions),
            "test_users": len(material.test),
        },
    )
    if options.anew:
        results.forget(turns)
    missing = results.list_missing(turns)
    words = [options.log.name if word == str(options.log) else word for word in sys.argv[1:]]  # no folder of the reader
    command = shlex.join([Path(sys.executable).name, "-m", "benchmarks.training.learning", *words])
    try:
        for number, turn in enumerate(missing, 1):
            curve = begin_curve(turn, command=command, **_describe_now(turn))
            place = f"{name_curve(curve)}, {number} of {len(missing)}"
            _measure(turn, curve, material, results, python=interpreters[turn.system], place=place)
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped; what was measured is in {options.out}, and the same command goes on from there\n")
        return _INTERRUPTED
    finally:
        results.write()
        write_whole(results.path.with_suffix(".png"), draw_learning(results.document))
    sys.stdout.write(f"{format_curves(results.curves)}\n{format_published(results.document)}")
    return 0


def _describe_now(turn: Turn) -> dict[str, object]:
    return {
        "began_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
        "environment": describe_machine() | describe_environment(torch.device("cpu")) | {"threads": turn.terms.threads},
    }


def _measure(turn: Turn, curve: Curve, material: Material, results: Results, *, python: Path, place: str) -> None:
    """Run one turn to its end, each check of it kept as soon as it comes."""
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-learning-") as folder,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        write_task(Path(folder), turn.terms, material)
        task = progress.add_task(f"{place}: prepares", total=turn.terms.marks[-1])

        def note(line: dict[str, Any]) -> None:
            progress.update(task, completed=line["cpu_seconds"], description=f"{place}: CPU seconds")
            if line["event"] == "check":
                curve["checks"].append({key: value for key, value in line.items() if key != "event"})
                results.keep(curve)
                console.print(_format_check(place, line), highlight=False, soft_wrap=True)

        end = run_turn(turn.system, python, Path(folder), threads=turn.terms.threads, on_line=note)
    curve |= {key: value for key, value in end.items() if key not in {"event", "contestant", "checks"}}
    curve["ended"] = True
    results.keep(curve)


def _format_check(place: str, check: dict[str, Any]) -> str:
    found = ", ".join(f"{asked} {check[asked][PRIMARY_METRIC]:.4f}" for asked in ("validation", "test"))
    return f"{place}: {check['cpu_seconds']:7.1f} CPU s, {check['steps']:,} steps: {found}"


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("log", type=Path, help="an interaction log that nextitem-train reads")
    parser.add_argument("--environments", type=Path, default=Path(".cache/peers"), help="folder of the environments")
    parser.add_argument("--systems", nargs="+", choices=OURS_AND_PEERS, default=OURS_AND_PEERS, help="who takes part")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS, help="what is trained")
    parser.add_argument("--minutes", type=_read_above_0, default=10.0, help="CPU minutes of each network and system")
    parser.add_argument("--marks", type=_read_count, default=6, help="measurements: the last, at half of it, and so on")
    parser.add_argument("--threads", type=_read_count, default=1, help="threads of each; needs as many idle cores")
    parser.add_argument("--max-length", type=_read_count, default=50, help="N of all")
    parser.add_argument("--width", type=_read_count, default=64, help="d of all")
    parser.add_argument("--layers", type=_read_count, default=2, help="L of all")
    parser.add_argument("--heads", type=_read_count, default=2, help="h of all")
    parser.add_argument("--seed", type=int, default=1, help="of weights, batches and the choice of validation users")
    parser.add_argument("--users", type=_read_count, default=2048, help="validation users; the test asks everybody")
    for network in NETWORKS:
        parser.add_argument(
            f"--{network}",
            metavar="RECIPE",
            default=str(_RECIPES / f"{network}.toml"),
            help="the recipe of ours, by name or path; its sizes are those of all and its budget is --minutes",
        )
    parser.add_argument("--anew", action="store_true", help="measure again what was measured")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results/learning.json"), help="and a .png beside it"
    )
    return parser


def _read_above_0(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("it must be above 0")
    return value


def _read_count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
