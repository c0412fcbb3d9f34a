"""Does it pay to begin a retraining with the champion's weights? Warm, shrunk and cold starts by processor seconds.

    python -m benchmarks.accuracy.retraining LOG.csv --work FOLDER

The champion learns from the older events, without every tenth of the 400 most frequent items, as if those had come out
since. Each start then trains on the whole log as `nextitem-train retrain` does, up to the offline trial, and all answer
the same held-out events. Last, a warm start on a log whose items are shuffled, which must not pass.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from model.nets.network import SequenceNetwork
from training.data.interactions import Log
from training.data.split import count_items
from training.evaluation.metrics import PRIMARY_METRIC
from training.fit.fit import fit
from training.logs.reader import read_log
from training.publish.publish import publish_run
from training.recipe import Recipe, read_recipe
from training.retrain.champion import find_champion
from training.retrain.held_out import HeldOut, count_new, hold_out
from training.retrain.history_gain import measure_history_gain
from training.retrain.offline_trial import CANDIDATE, CHAMPION, Gains, Graph, answer_questions, judge
from training.retrain.order import Order
from training.retrain.retrain import retrain
from training.retrain.training import Job, Start, choose_start, shorten, train_measured
from training.retrain.warm_start import STARTS
from training.runs.evaluate import print_note
from training.runs.networks import load_network
from training.runs.run import Run

POPULAR, EVERY = 400, 10
"""Every tenth of the 400 most frequent items is new since the champion."""


def main() -> int:
    """Train the champion and each start, and print a table; 0 if warm is as good as cold at a third of its seconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.retraining", description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--recipe", default="bert4rec-small")
    parser.add_argument("--share", type=float, default=0.8, help="of the events, the oldest: the champion's (0.8)")
    parser.add_argument("--work", type=Path, required=True, help="folder for logs, runs and bundles")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    recipe = read_recipe(options.recipe, options.settings)
    log = read_log(options.log, recipe.data)
    new_items = _train_champion(recipe, log, options)
    champion = find_champion(options.work / "bundles", options.work / "runs")
    held = hold_out(log, count_new(log, champion.learned_until_ms))
    job = Job(log, options.log, None, stop=lambda: False)
    released = np.isin(held.asked.targets, log.vocabulary.encode(new_items))
    found: dict[str, Any] = {
        "events": len(log.items),
        "champion": {"events": int(len(log.items) * options.share), "items": len(champion.bundle.vocabulary)},
        "questions": len(held.asked),
        "users": len(np.unique(held.owners)),
        "questions_about_new_items": int(released.sum()),
        "starts": {},
    }
    old = answer_questions(Graph.of_bundle(champion.bundle), log, held.asked)
    for start in STARTS:
        begun, path = choose_start(start, champion, recipe), options.work / "starts" / start
        gains, history_gain, measured = _measure(begun, recipe, job, held, path)
        trial = judge({CANDIDATE: gains, CHAMPION: old}, held.owners, history_gain)
        found["champion"] |= trial["models"][CHAMPION]
        found["starts"][start] = {
            **trial["models"][CANDIDATE],
            **measured,
            "HR@10 of new items": float(gains["HR@10"][released].mean()),
            "over_champion": trial["difference"],
            "history_gain": trial["history_gain"],
            "passed": trial["passed"],
        }
    sys.stderr.write(json.dumps(found, indent=2) + "\n")
    found["shuffled"] = _retrain_shuffled(log, options)
    (options.work / "retraining.json").write_text(json.dumps(found, indent=2) + "\n")
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0 if _holds(found) else 1


def _train_champion(recipe: Recipe, log: Log, options: argparse.Namespace) -> list[str]:
    """Fit and publish the champion, unless it is there already. Returns the items that are new since."""
    assert log.timestamps_ms is not None  # noqa: S101 - a log without times is refused later, with a message
    counts = count_items(log.histories, len(log.vocabulary))
    hidden = np.argsort(-counts, kind="stable")[:POPULAR:EVERY] + 1
    moment = int(np.quantile(log.timestamps_ms, options.share))
    older = options.work / "older.csv"
    _write(log, older, (log.timestamps_ms < moment) & ~np.isin(log.items, hidden))
    run = options.work / "runs" / "champion"
    plain = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, format="csv"))
    fit(plain, older, run, resume=True, items=None, stop=lambda: False, baselines=())
    publish_run(Run.open(run), options.work / "bundles", None)
    return [log.vocabulary.item_ids[index - 1] for index in hidden]


def _measure(
    begun: Start, recipe: Recipe, job: Job, held: HeldOut, path: Path
) -> tuple[Gains, NDArray[np.float64], Mapping[str, Any]]:
    """Train from one start. Returns its gains on the held-out events, what histories add to them, and what it took."""
    measured = train_measured(path, shorten(recipe, held, begun, None), job, held, begun)
    assert measured is not None  # noqa: S101 - nobody stops it
    network = load_network(measured.run)
    assert isinstance(network, SequenceNetwork)  # noqa: S101 - a champion is served
    results = measured.run.read_results()
    graph = Graph.of_network(network, measured.run.vocabulary)
    gains = answer_questions(graph, job.log, held.asked)
    history_gain = measure_history_gain(graph, job.log, held.asked, held.owners)
    return (
        gains,
        history_gain,
        {
            "cpu_seconds": round(measured.cpu_seconds, 1),
            "epochs": results["epochs"],
            "kept_epoch": results["kept_epoch"],
        },
    )


def _retrain_shuffled(log: Log, options: argparse.Namespace) -> dict[str, Any]:
    """The command on a log in which every event has the item of another one."""
    draw = np.random.default_rng(1)
    shuffled = dataclasses.replace(log, items=draw.permutation(log.items))
    path = options.work / "shuffled.csv"
    _write(shuffled, path, np.ones(len(log.items), dtype=bool))
    order = Order(data=path, bundle=options.work / "bundles", runs=options.work / "runs", settings=("data.format=csv",))
    outcome = retrain(order, stop=lambda: False, announce=print_note)
    return {"exit": outcome.code, "said": outcome.said, "version": outcome.version}


def _write(log: Log, path: Path, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    users, _ = log.histories.flatten()
    assert log.timestamps_ms is not None  # noqa: S101 - as above
    pl.DataFrame(
        {
            "user": np.array(log.user_ids)[users[kept]],
            "item": np.array(log.vocabulary.item_ids)[log.items[kept] - 1],
            "timestamp": log.timestamps_ms[kept],
        }
    ).write_csv(path)


def _holds(found: Mapping[str, Any]) -> bool:
    cold, warm = (found["starts"][start] for start in ("cold", "warm"))
    return bool(
        warm[PRIMARY_METRIC]["value"] >= cold[PRIMARY_METRIC]["low"]
        and warm["cpu_seconds"] <= cold["cpu_seconds"] / 3
        and warm["HR@10 of new items"] > 0
        and found["shuffled"]["exit"] == 3
    )


if __name__ == "__main__":
    sys.exit(main())
