"""Two hundred swaps under load with one worker and with two, beside a control without any.

`python -m benchmarks.reliability.swaps`, or `make swaps`: ends with status 1 when an answer is missing, degraded or
mixes two catalogues, when answers are slower than the control's, or when memory grows. With `--corrupt`: a thousand
damaged bundles are named champion of a running service, and a good one after every fiftieth.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness.console import say
from benchmarks.harness.open_loop import Outcome, percentile
from benchmarks.reliability.swaps.damage import DAMAGES, GRAPH_DAMAGES
from benchmarks.reliability.swaps.runs import (
    WARM_UP_S,
    Run,
    corrupt_times,
    look_times,
    serving,
    swap_times,
    under_load,
)

ASKS, SENDS = 100.0, 20.0
"""A second."""
P99_SHARE, P99_MORE_S = 1.25, 0.005
"""How much slower the 99th percentile may be than the control's."""
LONGEST_MORE_S = 0.1
GROWTH_MIB = 32.0
"""From the tenth swap to the last."""
SOON_S = 5.0
"""Within which a good version serves."""


async def compare_swaps(folder: Path, *, workers: int, times: int) -> bool:
    """Swaps under load, then as long without; whether nobody noticed."""
    async with serving(folder, workers=workers) as (service, root):
        run = await under_load(
            service, partial(swap_times, root=root, service=service, times=times), asks=ASKS, sends=SENDS
        )
        seconds = max(outcome.at_s for outcome in run.outcomes)
        control = await under_load(
            service, partial(look_times, service=service, took_s=run.took_s), asks=ASKS, sends=SENDS
        )
    (p99_s, longest_s), (calm_p99_s, calm_longest_s) = _latencies(run.outcomes), _latencies(control.outcomes)
    late_s = percentile([outcome.late_s for outcome in run.outcomes], 0.99)
    tenth = run.resident_mib[min(9, len(run.resident_mib) - 1)]
    say(
        f"{workers} at work, {times} swaps in {seconds:.0f} s: {len(run.outcomes)} requests, {len(run.bad)} bad "
        f"{_count(run)}; p99 {p99_s * 1e3:.1f} ms, longest {longest_s * 1e3:.1f} (control {calm_p99_s * 1e3:.1f}, "
        f"{calm_longest_s * 1e3:.1f}; the asker was late by {late_s * 1e3:.1f}); in use after "
        f"{percentile(run.took_s, 0.5):.2f} s, at most "
        f"{max(run.took_s):.2f}; {tenth:.1f} MiB resident after 10, {run.resident_mib[-1]:.1f} at the end; "
        f"{run.metrics['nextitem_models_loaded']:.0f} model in memory"
    )
    return (
        not run.bad
        and p99_s <= P99_SHARE * calm_p99_s + P99_MORE_S
        and longest_s <= calm_longest_s + LONGEST_MORE_S
        and run.resident_mib[-1] <= tenth + GROWTH_MIB
        and run.metrics["nextitem_models_loaded"] == 1
    )


async def refuse_all(folder: Path, *, workers: int, times: int, good_every: int) -> bool:
    """Damaged bundles under load; whether none was taken and nobody noticed."""
    act = partial(corrupt_times, times=times, good_every=good_every, damages=(*DAMAGES, *GRAPH_DAMAGES))
    async with serving(folder, workers=workers) as (service, root):
        run = await under_load(service, partial(act, root=root), asks=ASKS, sends=SENDS)
    codes = ", ".join(f"{code} {count}" for code, count in Counter(run.refused).most_common())
    refusals = run.metrics['nextitem_model_reloads_total{result="refused"}']
    say(
        f"{workers} at work, {times} damaged bundles: {len(run.refused)} refused ({codes}; {refusals:.0f} by the "
        f"metric), {len(run.outcomes)} requests, {len(run.bad)} of them bad {_count(run)}; a good one in use after at "
        f"most {max(run.took_s, default=0.0):.2f} s"
    )
    return not run.bad and len(run.refused) == times and max(run.took_s, default=0.0) <= SOON_S


def _latencies(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """The 99th percentile and the longest, in seconds."""
    times_s = [outcome.latency_s for outcome in outcomes if outcome.label == "ask" and outcome.at_s >= WARM_UP_S]
    return percentile(times_s, 0.99), max(times_s)


def _count(run: Run) -> str:
    kinds = Counter((outcome.label, outcome.status, outcome.degraded, outcome.fault) for outcome in run.bad)
    return str(dict(kinds)) if kinds else ""


async def main(arguments: argparse.Namespace, folder: Path) -> int:
    """All runs; the exit status."""
    well = True
    for workers in arguments.workers:
        place = folder / str(workers)
        if arguments.corrupt:
            times = arguments.times or 1000
            good = await refuse_all(place, workers=workers, times=times, good_every=min(50, max(1, times // 2)))
        else:
            good = await compare_swaps(place, workers=workers, times=arguments.times or 200)
        say("Nobody noticed." if good else "NOTICED.")
        well = well and good
    return 0 if well else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.swaps", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--times", type=int, help="how many changes (default: 200, with --corrupt 1000)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="(default: 1 2)")
    parser.add_argument("--corrupt", action="store_true", help="damaged bundles instead of good ones")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swaps-") as temporary:
        try:
            sys.exit(asyncio.run(main(given, Path(temporary))))
        except KeyboardInterrupt:
            sys.exit(130)
