"""The command `sweep`: its options are checked before anything heavy is imported."""

import argparse
import sys

from training.sweep.plan import make_plan


def run_command(options: argparse.Namespace) -> int:
    """Sweep as the options say. Returns the exit status. Raises TrainingError."""
    plan = make_plan(
        options.recipe,
        options.settings,
        tried=options.tried,
        preset=options.preset,
        grid=options.grid,
        data=options.data,
        items=options.items,
        out=options.out,
        trials=options.trials,
        minutes=options.minutes,
        prune=options.prune,
    )
    from training.fit.interrupt import Interrupt  # noqa: PLC0415
    from training.sweep.command import run_sweep  # noqa: PLC0415 - imports torch, Optuna and matplotlib

    with Interrupt() as interrupt:
        swept = run_sweep(plan, interrupt.is_asked)
    sys.stdout.write(f"{swept.table}\n")
    written = "sweep.md, sweep.png and best.toml" if swept.has_best else "sweep.md and sweep.png"
    sys.stderr.write(f"nextitem-train: written to {plan.out}: {written}\n")
    if interrupt.received is None:
        return 0
    sys.stderr.write("nextitem-train: stopped; what is finished is kept: run the same command to continue\n")
    return 128 + interrupt.received
