"""The command: arguments in, sentences, table and verdict out."""

import argparse
import sys
from pathlib import Path

from training.arguments.names import MINUTES
from training.auto.automatic_fit import Order, fit_automatically
from training.auto.clock import Clock
from training.auto.verdict import format_all, format_next
from training.fit.interrupt import Interrupt
from training.tracking.trackers import choose_trackers


def run_auto(options: argparse.Namespace, out: Path, begun: float) -> int:
    """Run `fit` without a recipe. Returns the exit status: 0, or 130 after Ctrl-C, when --resume goes on.

    `begun` is what `time.monotonic` said when the command began.
    """
    start = ["train.item_init=vectors"] if options.item_vectors else []
    order = Order(
        data=options.data,
        out=out,
        items=options.items,
        item_vectors=options.item_vectors,
        settings=(*options.settings, *start),
        clock=Clock(60 * (options.minutes or MINUTES), begun),
        resume=options.resume,
        trackers=choose_trackers(tensorboard=options.tensorboard, mlflow=options.mlflow),
    )
    with Interrupt() as interrupt:
        verdict = fit_automatically(order, _say, interrupt.is_asked)
    if verdict is None:
        sys.stderr.write(f"nextitem-train: stopped; saved in {out}: run the same command with --resume to continue\n")
        return 128 + (interrupt.received or 2)
    _say(f"\n{format_all(verdict)}\n\n{format_next(verdict, out, options.data)}")
    _say(f"All of it took {order.clock.elapsed / 60:.1f} minutes.")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
