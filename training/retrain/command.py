"""The command: one retraining at a time, once or again and again."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from model.contract.atomic_files import hold_lock
from training.errors import RunError, TrainingError
from training.fit.interrupt import Interrupt
from training.retrain.order import Order, Outcome, Stopped
from training.retrain.retrain import retrain

LOCK = "retrain.lock"
INTERRUPTED = 130
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
    with hold_runs(order), Interrupt() as interrupt:
        try:
            if options.every is None:
                return _say(retrain(order, stop=interrupt.is_asked, announce=_note)).code
            _repeat(order, options.every, interrupt.is_asked)
        except Stopped:
            _note("stopped; nothing was published")
        return 128 + (interrupt.received or INTERRUPTED - 128)


@contextlib.contextmanager
def hold_runs(order: Order) -> Iterator[None]:
    """Hold the runs' folder for the one retraining that is under way; a dry run needs no lock, and writes none.

    Raises RunError if another process holds it.
    """
    if order.dry_run:
        yield
        return
    with contextlib.ExitStack() as held:
        order.runs.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(hold_lock(order.runs / LOCK, patience_s=0.0))
        except BlockingIOError as error:
            raise RunError(f"another retraining is under way: it holds {order.runs / LOCK}") from error
        yield


def _repeat(order: Order, every_s: float, stop: Callable[[], bool]) -> None:
    """Retrain now and every so many seconds, counted from beginning to beginning, until `stop`."""
    while True:
        next_s = time.monotonic() + every_s
        try:
            _say(retrain(order, stop=stop, announce=_note))
        except TrainingError as error:
            _note(str(error))
        except OSError as error:  # a full disk, a folder that cannot be read for a while
            _note(f"{error.filename or 'input or output'}: {error.strerror or error}")
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
