"""One retraining, if there is anything to retrain for: new events, a need, enough questions to judge it by.

```
RUNS/retrain.lock              held by the one retraining that is under way
     last-round.json           with --every: how the last round ended
     retrain-TIME/measured     the run without the newest events, which the offline trial judges
                 /whole        its refit on all events, which is published
                 /report.md, report.png, retrain.json
```
The champion is never touched: the bundle becomes a candidate in shadow, and the live trial decides.
"""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from training.data.interactions import Log
from training.logs.archive import is_new_archive
from training.logs.reader import read_log
from training.recipe import Recipe
from training.retrain.champion import PUBLISHED, Champion, choose_recipe, find_champion
from training.retrain.held_out import LEAST_QUESTIONS, HeldOut, count_new, hold_out
from training.retrain.need import find_need
from training.retrain.order import NOT_GOOD_ENOUGH, Order, Outcome, say_busy
from training.retrain.report import REPORT
from training.retrain.retraining import Retraining
from training.retrain.training import Start, choose_start, shorten

LEAST_NEW, LEAST_NEW_SHARE = 500, 0.01
"""A retraining has something to learn from max(500, 1 %) new events on."""


def retrain(order: Order, *, stop: Callable[[], bool], announce: Callable[[str], None]) -> Outcome:
    """Retrain once, where it is worth it. Raises TrainingError for what stands in the way, and Stopped.

    Then nothing is on trial, unless only the report failed. The run of a bundle that was written stays.
    """
    champion = find_champion(order.bundle, order.runs)
    if pause := _find_pause(order, champion):
        return Outcome(0, pause)
    recipe = choose_recipe(champion, order.recipe, order.settings)
    start = choose_start(order.start, champion, recipe)
    log = read_log(order.data, recipe.data, base=order.base)
    new = count_new(log, champion.learned_until_ms)
    least = max(LEAST_NEW, int(LEAST_NEW_SHARE * len(log.items)))
    if new < least:
        return Outcome(0, f"nothing to learn: {new:,} events are new since {champion.version}, it takes {least:,}")
    need = find_need(order.bundle, champion, log) if order.if_needed else None
    if order.if_needed and need is None:
        return Outcome(0, f"no need: {champion.version} knows what it is asked about, and {new:,} events are new")
    held = hold_out(log, new)
    if len(held.asked) < LEAST_QUESTIONS:
        said = f"{len(held.asked)} questions since {held.held_out_from} are too few to say: it takes {LEAST_QUESTIONS}"
        return Outcome(NOT_GOOD_ENOUGH, f"{said}; nothing was trained")
    plan = _describe_plan(champion, log, held, start, shorten(recipe, held, start, order.budget))
    announce(plan if need is None else f"{need}. {plan}")
    if order.dry_run:
        return Outcome(0, "dry run: nothing was trained or written")
    folder = order.runs / f"retrain-{datetime.now(tz=UTC):%Y%m%dT%H%M%S}"
    try:
        return Retraining(order, champion, recipe, log, new, held, start, folder, stop, announce).run()
    except BaseException:
        if not _is_worth_keeping(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _find_pause(order: Order, champion: Champion) -> str | None:
    """Why there is nothing to do before the log is read, or None."""
    if champion.deployment.candidate and not order.replace:
        return say_busy(champion.deployment)
    return f"nothing to learn: {order.data} holds no event yet" if is_new_archive(order.data) else None


def _is_worth_keeping(folder: Path) -> bool:
    """Whether the folder of a failed retraining has a report, or the run of a bundle: the next one starts from that."""
    return (folder / REPORT).is_file() or any(folder.glob(f"*/{PUBLISHED}"))


def _describe_plan(champion: Champion, log: Log, held: HeldOut, start: Start, recipe: Recipe) -> str:
    items = len(set(log.vocabulary.item_ids) - set(champion.bundle.vocabulary.item_ids))
    reason = f" ({start.why})" if start.why else ""
    budget = recipe.train.budget_seconds
    limit = f"{recipe.train.epochs} epochs" + (f" or {budget:g} s" if budget else "")
    new = count_new(log, champion.learned_until_ms)
    return (
        f"{len(log.items):,} events, {new:,} of them and {items:,} items new since {champion.version}; "
        f"{len(held.asked):,} questions since {held.held_out_from}; {start.name} start{reason}, "
        f"at most {limit}"
    )
