"""A model's second day: new films, quality falls, retrain, trial, promotion, quality rises. `make day-two` runs it.

A hundred of MovieLens-100K's most rated films are kept from the first model, as if they came out after it was trained.
"""

import argparse
import functools
import math
import shutil
import sys
import time
from pathlib import Path

import httpx
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from demo.bundle import LOG
from demo.commands import DemoFailed, console, end_in_order, head, manage, serve, train
from demo.live import Live, look
from demo.movielens import read_ratings
from demo.new_films import Watching, choose_new, cut_past, write_log
from demo.replay import send_histories

DATA = Path(".cache/ml-100k")
FOLDER = Path("artifacts/day-two")
RATE, JUDGE_RATE = 100.0, 200
FIRST_S, RETRAIN_S = 15, 40
"""Seconds of training, of the first model and of the next one."""
BEFORE_S, NEW_S, TRIAL_S, AFTER_S = 8.0, 16.0, 22.0, 8.0
"""Seconds of traffic: without new films, with them, at most until the verdict, and after it."""
MIN_TRIALS = 300
ENOUGH = 20.0
SETTLE_S = 7.0
"""The judge writes its figures every 5 s."""


def main() -> int:
    """Run it; 0 when everything came as it should."""
    parser = argparse.ArgumentParser(prog="python -m demo.day_two", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8000, help="where the service listens on 127.0.0.1 (default 8000)")
    return end_in_order(functools.partial(run, parser.parse_args().port), interrupted=130)


def run(port: int) -> None:
    """All of it, from scratch. Raises DemoFailed where a step does not do what it should."""
    began_s = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    bundles, runs, store, log = (FOLDER / name for name in ("bundles", "runs", "store", "service.log"))
    head(1, "A model that knows nothing of a hundred films")
    train("fetch", "ml-100k", "--out", str(DATA))
    ratings = read_ratings(DATA / LOG)
    new = choose_new(ratings)
    past = cut_past(ratings, new)
    write_log(past, FOLDER / "past.csv")
    first = (
        "--set",
        f"train.budget_seconds={FIRST_S}",
        "--set",
        "train.item_init=ppmi",
        "--set",
        "model.rules_per_item=200",
    )
    train("fit", "bert4rec-small", "--data", str(FOLDER / "past.csv"), *first, "--out", str(runs / "first"))
    train("publish", str(runs / "first"), "--out", str(bundles))
    head(2, "Everybody's past, and a day like any other")
    with serve(bundles, store, port, log, "--judge", "off") as client:
        for _ in send_histories(client, past):
            pass
    with serve(bundles, store, port, log, "--judge-rate", str(JUDGE_RATE)) as client:
        watching = Watching.begin(client, ratings, past, new)
        before = watch(watching, BEFORE_S, "films that it knows")
        head(3, "A hundred films come out")
        watching.with_new = True
        drifted = watch(watching, NEW_S, "half of the events: new films")
        if drifted.ndcg >= before.ndcg:
            raise DemoFailed("live NDCG@10 did not fall")
        head(4, f"Retrain from the service's own log, {RETRAIN_S} s")
        manage("archive", "--once", "--archive-dir", str(store / "archive"))
        change(bundles, store, "terms", "--path", "shadow", "--min-trials", str(MIN_TRIALS), "--min-hours", "0")
        log_of_all, folders = ("--data", str(store / "archive")), ("--bundle", str(bundles), "--runs", str(runs))
        train("retrain", *log_of_all, *folders, "--budget", str(RETRAIN_S))
        head(5, "On trial: both models are asked about every event")
        await_promotion(client, watching)
        after = watch(watching, AFTER_S, "the new model answers")
        for name, live in (("before", before), ("new films", drifted), ("promoted", after)):
            console.print(
                f"{name:<10} NDCG@10 {live.ndcg:.4f}, {live.unknown_share:.0%} unknown, {live.trials:,.0f} events"
            )
        if after.ndcg <= drifted.ndcg:
            raise DemoFailed("live NDCG@10 did not rise after the promotion")
        head(6, "The journal, and back and forth")
        champion = name_champion(client)
        change(bundles, store, "rollback", "--wait", "--why", "to show it")
        change(bundles, store, "use", champion, "--wait", "--why", "and back")
        change(bundles, store, "journal", "--verify")
        if name_champion(client) != champion:
            raise DemoFailed("the service does not answer with the promoted model")
    console.print(f"[bold]{time.monotonic() - began_s:.0f} s[/]")


def watch(watching: Watching, seconds: float, what: str) -> Live:
    """Traffic for a while, and what the judge saw of the champion meanwhile."""
    start = look(watching.client)
    with _show_progress() as progress:
        bar = progress.add_task(what, total=seconds)
        for passed_s in watching.play(RATE, seconds):
            progress.update(bar, completed=passed_s)
    time.sleep(SETTLE_S)
    live = look(watching.client).since(start)
    console.print(f"live NDCG@10 {live.ndcg:.4f}, {live.unknown_share:.0%} of {live.trials:,.0f} events unknown")
    return live


def await_promotion(client: httpx.Client, watching: Watching) -> None:
    """Traffic until the champion is another one. Raises DemoFailed where it stays."""
    champion, looked_s = name_champion(client), 0.0
    with _show_progress() as progress:
        bar = progress.add_task("evidence, up to 20", total=math.log(ENOUGH))
        for passed_s in watching.play(RATE, TRIAL_S):
            if passed_s < looked_s + 1:
                continue
            looked_s = passed_s
            progress.update(bar, completed=max(0.0, math.log(max(look(client).better, 1e-9))))
            if name_champion(client) != champion:
                return
    deadline_s = time.monotonic() + SETTLE_S
    while name_champion(client) == champion:
        if time.monotonic() > deadline_s:
            raise DemoFailed(f"no verdict within {TRIAL_S:.0f} s: the evidence is {look(client).better:.3g}")
        time.sleep(0.5)


def name_champion(client: httpx.Client) -> str:
    """The version that answers."""
    return str(client.get("/model").json()["version"])


def change(bundles: Path, store: Path, command: str, *options: str) -> None:
    """A sub-command of `nextitem-serve models`."""
    manage("models", "--bundle", str(bundles), "--data-dir", str(store), command, *options)


def _show_progress() -> Progress:
    return Progress(TextColumn("{task.description:<30}"), BarColumn(), TimeElapsedColumn(), console=console)


if __name__ == "__main__":
    sys.exit(main())
