"""The command: one retraining at a time, once or again and again."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable

from training.errors import TrainingError
from training.fit.interrupt import Interrupt
from training.retrain.order import Order, Outcome, Stopped
from training.retrain.retrain import retrain
from training.retrain.rounds import note_round
from training.runs.lock import hold_lock

LOCK = "retrain.lock"
INTERRUPTED = 130
RETRY_S = 3600.0
"""How soon a round that failed is tried again at the latest."""
_LOOK_S = 0.2
"""How soon a signal ends the wait for the next retraining."""


def run_retrain(options: argparse.Namespace) -> int:
    """Retrain as the options say. Returns the exit status: 0 published or nothing new, 3 not good enough.

    With `every`, again and again until a signal; a failure is said, and the next round tries again.
    Raises TrainingError.
    """
    order = Order(
        data=options.data,
        bundle=options.bundle,
        runs=options.runs,
        base=options.base,
        items=options.items,
        recipe=options.recipe,
        settings=tuple(options.settings),
        start=options.start,
        budget=options.budget,
        if_needed=options.if_needed,
        dry_run=options.dry_run,
        replace=options.replace,
    )
    # A dry run needs no lock, and writes none.
    lock = contextlib.nullcontext() if order.dry_run else hold_lock(order.runs / LOCK, "retraining")
    with lock, Interrupt() as interrupt:
        try:
            if options.every is None:
                return _say(retrain(order, stop=interrupt.is_asked, announce=_note)).code
            _repeat(order, options.every, interrupt.is_asked)
        except Stopped:
            _note("stopped; nothing was published")
        return 128 + (interrupt.received or INTERRUPTED - 128)


def _repeat(order: Order, every_s: float, stop: Callable[[], bool]) -> None:
    """Retrain now and every so many seconds, counted from beginning to beginning, until `stop`.

    A round that fails is tried again within the hour.
    """
    while True:
        began_s, failure = time.monotonic(), None
        try:
            _say(retrain(order, stop=stop, announce=_note))
        except TrainingError as error:
            failure = str(error)
        except OSError as error:  # a full disk, a folder that cannot be read for a while
            failure = f"{error.filename or 'input or output'}: {error.strerror or error}"
        if failure is not None:
            _note(failure)
        if not order.dry_run:
            note_round(order.runs, every_s, failure)
        next_s = began_s + (every_s if failure is None else min(every_s, RETRY_S))
        while True:  # a retraining that took longer than `every_s` must not hide a signal
            if stop():
                raise Stopped
            left_s = next_s - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(_LOOK_S, left_s))


def _say(outcome: Outcome) -> Outcome:
    sys.stdout.write(f"{outcome.said}\n")
    sys.stdout.flush()
    return outcome


def _note(text: str) -> None:
    sys.stderr.write(f"nextitem-train: {text}\n")
