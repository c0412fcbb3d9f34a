"""Whether the verdict of a trial errs as rarely as it says, and finds what is there as soon as it should.

`make trial` runs 1,000 simulated trials of each row of the table (`cases.py`): up to 20,000 paired events in visits of
one user, with days' cycles and a base rate that drifts. Some trials also go through the service's own state machine,
which must say the same at the same event, and one has no traffic, which must be held. Ends with status 1 where
something that is promised is not kept.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness.console import say
from benchmarks.harness.machine import describe_machine
from benchmarks.trial.cases import QUESTIONS, Question, share_of
from benchmarks.trial.events import Numbers
from benchmarks.trial.machine import count_agreeing, watch_silence
from benchmarks.trial.paths import NEVER
from benchmarks.trial.picture import draw_shares
from training.json_files import write_json

AT_ONCE = 20
"""Trials of one piece of work."""
THROUGH_THE_MACHINE = 2
"""Trials of each planted difference that the state machine decides, too."""
_INTERRUPTED = 130


def main() -> int:
    """Simulate, print the table, write JSON and picture. 0: all is kept, 1: something is not, 130: stopped."""
    options = _make_parser().parse_args()
    began, began_s = datetime.now(tz=UTC), time.monotonic()
    try:
        rows = [describe(question, firsts) for question, firsts in simulate(QUESTIONS, options.trials)]
    except KeyboardInterrupt:
        return _INTERRUPTED
    agreeing, asked = count_agreeing(QUESTIONS, THROUGH_THE_MACHINE)
    actions = watch_silence()
    say(f"The state machine says the same at the same event in {agreeing} of {asked} trials")
    say(f"Twenty days without traffic: {', '.join(sorted(actions))}")
    kept = agreeing == asked and actions == {"hold"} and all(row["kept"] is not False for row in rows)
    document = {
        "command": shlex.join([Path(sys.executable).name, "-m", "benchmarks.trial", *sys.argv[1:]]),
        "began_at": f"{began:%Y-%m-%dT%H:%M:%SZ}",
        "seconds": round(time.monotonic() - began_s, 1),
        "environment": describe_machine() | {"numpy": np.__version__, "python": sys.version.split()[0]},
        "trials": options.trials,
        "state_machine": {"agreeing": agreeing, "asked": asked},
        "without_traffic": sorted(actions),
        "measured": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / "trial.json", document)
    (options.out / "trial.png").write_bytes(draw_shares(rows))
    say(f"All that is promised is {'kept' if kept else 'NOT KEPT'}; see {options.out}/trial.json and trial.png")
    return 0 if kept else 1


def simulate(questions: Sequence[Question], trials: int) -> Iterator[tuple[Question, Numbers]]:
    """Each question with the event of the verdict in each trial, as it is done."""
    console = Console(stderr=True)
    seeds = range(-(-trials // AT_ONCE))
    say(f"{'candidate':<24}{'verdict':<15}{'method':<9}{'within':>8}{'share':>8}{'median':>8}{'95 %':>8}  promised")
    with (
        ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), 8)) as pool,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=len(questions) * len(seeds))
        for question in questions:
            progress.update(task, description=f"{question.name}, {question.verdict}")
            pieces = []
            for piece in pool.map(question.answer, seeds, [AT_ONCE] * len(seeds)):
                pieces.append(piece)
                progress.advance(task)
            firsts = np.concatenate(pieces)[:trials]
            say(format_row(describe(question, firsts)))
            yield question, firsts


def describe(question: Question, firsts: Numbers) -> dict[str, Any]:
    """A row: how many trials had the verdict, and by when. `by_event` is the share that had it by these events."""
    share = share_of(firsts)
    when = np.sort(np.where(firsts == NEVER, np.iinfo(np.int64).max, firsts))
    grid = np.unique(np.geomspace(50, question.events, 60).astype(int))
    return {
        "candidate": question.name,
        "mean_gain": question.candidate,
        "verdict": question.verdict,
        "method": question.method,
        "visit_share": question.taste,
        "within": question.events,
        "share": share,
        "median": _take(when, 0.5),
        "at_95_percent": _take(when, 0.95),
        "promised": question.promised,
        "kept": question.is_kept(share),
        "by_event": {str(event): float((when <= event).mean()) for event in grid},
    }


def format_row(row: dict[str, Any]) -> str:
    """A line of the table."""
    median, late = ("" if row[name] is None else f"{row[name]:,}" for name in ("median", "at_95_percent"))
    promise = row["promised"] + {True: ": kept", False: ": NOT KEPT", None: ""}[row["kept"]]
    return (
        f"{row['candidate']:<24}{row['verdict']:<15}{row['method']:<9}{row['within']:>8,}{row['share']:>8.1%}"
        f"{median:>8}{late:>8}  {promise}"
    )


def _take(when: Numbers, part: float) -> int | None:
    """The event by which this part of the trials had the verdict; None where it never had."""
    event = int(when[max(0, int(np.ceil(part * len(when))) - 1)])
    return None if event == np.iinfo(np.int64).max else event


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trial", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1_000, help="trials of each row (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder for JSON and picture")
    return parser


if __name__ == "__main__":
    sys.exit(main())
