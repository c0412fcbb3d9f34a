"""From nothing to recommendations: fetch, train, compare, publish, serve, replay, show. `make demo` runs it."""

import argparse
import functools
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from demo.bundle import ITEMS, LOG, add_recipe, make_bundle
from demo.commands import INTERRUPTED, DemoFailed, console, end_in_order, serve
from demo.movielens import Rating, read_ratings, read_titles
from demo.phases import Phases
from demo.replay import Online, count_all_stored, post, replay_user, send_histories

DATA = Path(".cache/ml-100k")
ARTIFACTS = Path("artifacts/demo")
BUNDLES = ARTIFACTS / "bundles"
SHOWN_USER = "42"
AHEAD_OF_POPULARITY = 1.5
"""By how much --check wants the model's NDCG@10 to beat popularity's."""


def main() -> int:
    """Run the demo; 0 when all went well."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="where the service listens on 127.0.0.1 (default 8000)")
    parser.add_argument("--check", action="store_true", help="start from scratch, verify every answer, and exit")
    add_recipe(parser)
    arguments = parser.parse_args()
    work = functools.partial(run, arguments.port, arguments.recipe, check=arguments.check, fresh=arguments.fresh)
    return end_in_order(work, interrupted=INTERRUPTED if arguments.check else 0)


def run(port: int, recipe: str, *, check: bool, fresh: bool) -> None:
    """Make the bundle, serve it, replay, compare with what the trainer measured, and show, in this order."""
    store, phases = ARTIFACTS / "store", Phases()
    if check:
        shutil.rmtree(ARTIFACTS, ignore_errors=True)
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    training = make_bundle(DATA, ARTIFACTS, BUNDLES, recipe, phases, fresh=fresh, check=check)
    phases.begin(f"Serve it on http://127.0.0.1:{port}")
    ratings, titles = read_ratings(DATA / LOG), read_titles(DATA / ITEMS)
    with serve(BUNDLES, store, port, ARTIFACTS / "service.log") as client:
        model = client.get("/model").json()
        console.print(f"{model['name']} {model['version']}, {model['item_count']} items, on {model['provider']}")
        phases.begin("Replay: histories first, then each user's held-out event, with a question before and after")
        online = replay(client, ratings)
        if online.users:
            results = json.loads((training / "results.json").read_text())
            compare(online, find_served(results, model["name"]), results["models"]["pop"], check=check)
        show(client, ratings[SHOWN_USER], titles)
        console.print(f"\nFrom the start to this answer: {phases.count()}")
        if not check:
            invite(client)


def find_served(results: dict[str, Any], name: str) -> dict[str, Any]:
    """What the service should reach: where rules are in the score, the asking user's own history is among them."""
    served: dict[str, Any] = results["served"] if "served" in results else results["models"][name]
    return served


def replay(client: httpx.Client, ratings: dict[str, list[Rating]]) -> Online:
    """Send all events that the store lacks, and verify the answers to the questions between them."""
    online = Online()
    stored = count_all_stored(client, list(ratings))
    histories = [events[:-1] for user, events in ratings.items() if stored[user] < len(events) - 1]
    fresh = [events for user, events in ratings.items() if stored[user] < len(events)]
    if not fresh:
        console.print("The store still holds every event of the last run: nothing to send.")
        return online
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        past = progress.add_task("histories", total=sum(map(len, histories)))
        for number in send_histories(client, histories):
            progress.advance(past, number)
        held_out = progress.add_task("held-out events", total=len(fresh))
        for events in fresh:
            replay_user(client, events, online)
            progress.advance(held_out)
    return online


def compare(online: Online, model: dict[str, Any], popularity: dict[str, Any], *, check: bool) -> None:
    """Print online beside offline metrics. With `check`, raises DemoFailed where they differ."""
    offline, popular = ({name: entry["value"] for name, entry in who.items()} for who in (model, popularity))
    for metric, value in online.metrics.items():
        console.print(
            f"{metric}: {value:.4f} online, {offline[metric]:.4f} offline, {popular[metric]:.4f} by popularity"
        )
        # Float noise may turn over a near tie: one user's worth of difference is none.
        if check and abs(value - offline[metric]) > 1.5 / online.users:
            raise DemoFailed(f"the service's {metric} is not the trainer's")
    if check and offline["NDCG@10"] < AHEAD_OF_POPULARITY * popular["NDCG@10"]:
        raise DemoFailed(f"the model's NDCG@10 is not {AHEAD_OF_POPULARITY} times popularity's")


def show(client: httpx.Client, ratings: list[Rating], titles: dict[str, str]) -> None:
    """Print one user's newest movies beside the recommendations, by title."""
    answer = post(client, "/recommend", {"user_id": ratings[0].user, "k": 10})
    table = Table(title=f"User {ratings[0].user}", title_justify="left")
    table.add_column("last watched, newest first")
    table.add_column("recommended next", style="bold green")
    table.add_column("score", justify="right")
    newest = list(reversed(ratings))
    for rating, recommended in zip(newest, answer["items"], strict=False):
        table.add_row(titles[rating.item], titles[recommended["item_id"]], f"{recommended['score']:.2f}")
    console.print(table)
    console.print(f"answered in {answer['took_ms']:.1f} ms from {answer['history']['length']} events")


def invite(client: httpx.Client) -> None:
    """Print what to try next and wait for Ctrl-C."""
    url = str(client.base_url).rstrip("/")
    console.print(f"""
[bold]It is yours until Ctrl-C:[/]
  {url}/           open it, click three films, and see what comes next
  {url}/docs       the routes
  {url}/model      the model in use
  {url}/metrics    what Prometheus scrapes
  curl -s {url}/recommend -H 'content-type: application/json' -d '{{"user_id": "{SHOWN_USER}"}}'""")
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
