"""What each step of the exported graph gains, in milliseconds and against the plain export of the same round.

`make bench-graph` runs all cases with one thread and with two. First of all every step must answer as PyTorch does
about 1,000 random histories. Then, in a round, every step has its turn, the quickest of a few runs; ratios are taken
within a round, since the machine's pace drifts. One thread is measured in CPU time, which other programs disturb less;
two are measured by the clock and want two free cores. Results are written as they come: Ctrl-C loses none of them.
"""

import argparse
import itertools
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.graph.proof import StepsDiffer, prove
from benchmarks.graph.steps import SCORED, Run, open_batches, open_bound, open_encoders, open_graphs
from benchmarks.harness.cases import CASES, Case, Feed, draw_feed, draw_lengths, draw_network, read_case
from benchmarks.harness.machine import describe_machine
from model.nets.network import SequenceNetwork
from training.environment import describe_environment
from training.json_files import write_json

_LEAST_RUNS = 2
_INTERRUPTED = 130


def main() -> int:
    """Run all cases. 0: done, 1: steps answered differently, 130: stopped."""
    options = _make_parser().parse_args()
    torch.set_num_threads(1)  # it waits for its other threads by spinning, which a busy machine cannot afford
    document: dict[str, Any] = {
        "command": shlex.join([Path(sys.executable).name, "-m", "benchmarks.graph", *sys.argv[1:]]),
        "began_at": f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}",
        "environment": describe_machine() | describe_environment(torch.device("cpu")),
        "network": options.network,
        "rounds": options.rounds,
        "histories": options.histories,
        "measured": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("", total=len(options.threads) * len(options.cases) * len(options.parts))
            for case, threads in itertools.product(options.cases, options.threads):
                network = draw_network(case, options.network)
                for part in options.parts:
                    progress.update(task, description=f"{case}, {part}, threads: {threads}")
                    for entry in _compare(network, case, part, threads, options):
                        document["measured"].append(entry)
                        write_json(options.out, document)
                        sys.stdout.write(format_entry(case, entry))
                        sys.stdout.flush()
                    progress.advance(task)
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped; the cases that ended are in {options.out}\n")
        return _INTERRUPTED
    except StepsDiffer as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


_PARTS: dict[str, tuple[Callable[[SequenceNetwork, int], dict[str, Run]], Callable[[Case], list[Feed]]]] = {
    "encoder": (open_encoders, lambda case: [draw_feed(case, 1)]),
    "full windows": (open_graphs, lambda case: [draw_feed(case, 1), draw_feed(case, 16)]),
    "mixed lengths": (open_batches, lambda case: [draw_feed(case, 32, lengths=draw_lengths(case, 32))]),
    "bound": (open_bound, lambda case: [draw_feed(case, 1), draw_feed(case, 16)]),
}
"""How the steps of each comparison are opened, and what they are asked."""


def _compare(
    network: SequenceNetwork, case: Case, part: str, threads: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    open_steps, draw_feeds = _PARTS[part]
    steps = open_steps(network, threads)
    whole = {name: run for name, run in steps.items() if name != SCORED}
    apart = prove(network, case, whole, histories=options.histories) if part != "encoder" else None
    clock = time.process_time if threads == 1 else time.perf_counter
    for feed in draw_feeds(case):
        times = race(steps, feed, clock, rounds=options.rounds, seconds=options.seconds)
        sizes = {"case": case._asdict(), "part": part, "threads": threads, "rows": len(feed["lengths"])}
        yield sizes | {"farthest_from_pytorch": apart, "steps": summarize(times)}


def race(
    steps: Mapping[str, Run], feed: Feed, clock: Callable[[], float], *, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Milliseconds of each step in each round: the quickest run within about `seconds`."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, run in steps.items():
            times[name].append(_time(run, feed, clock, seconds))
    return times


def _time(run: Run, feed: Feed, clock: Callable[[], float], seconds: float) -> float:
    quickest = np.inf
    end = time.perf_counter() + seconds
    for turn in itertools.count():
        began = clock()
        run(feed)
        quickest = min(quickest, clock() - began)
        if turn >= _LEAST_RUNS and time.perf_counter() > end:
            break
    return float(quickest * 1e3)


def summarize(times: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Of each step: milliseconds, and how many times quicker it is than the first one in the same round.

    And than the scores alone, where they were measured.
    """
    first = next(iter(times.values()))
    summary = {}
    for name, found in times.items():
        ratios = _divide(first, found)
        summary[name] = {
            "ms": statistics.median(found),
            "ms_least": min(found),
            "ratio": statistics.median(ratios),
            "ratio_least": min(ratios),
            "ratio_most": max(ratios),
        }
        if SCORED in times:
            summary[name]["ratio_to_scores"] = statistics.median(_divide(times[SCORED], found))
    return summary


def _divide(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]


def format_entry(case: Case, entry: Mapping[str, Any]) -> str:
    """A line a step."""
    lines = [f"{case}: {entry['part']}, rows: {entry['rows']}, threads: {entry['threads']}"]
    for name, step in entry["steps"].items():
        lines.append(
            f"  {name:<40}{step['ms']:9.3f} ms (best {step['ms_least']:.3f})"
            f"{step['ratio']:8.2f} times ({step['ratio_least']:.2f} to {step['ratio_most']:.2f})"
            + (f", {step['ratio_to_scores']:.2f} the scores alone" if "ratio_to_scores" in step else "")
        )
    return "\n".join(lines) + "\n"


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.graph", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", choices=("bert4rec", "sasrec"), default="bert4rec")
    parser.add_argument("--cases", nargs="*", type=read_case, default=CASES, help="each as N,items,D")
    parser.add_argument("--parts", nargs="*", choices=_PARTS, default=list(_PARTS))
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--histories", type=int, default=1000, help="about which all steps must answer as PyTorch does")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each step in a round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/graph.json"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
