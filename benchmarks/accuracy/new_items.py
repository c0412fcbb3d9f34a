"""Can items be recommended that training never saw? Trained before a moment, asked about items first seen after it.

    python -m benchmarks.accuracy.new_items LOG.csv ITEMS.csv --work FOLDER

Every event of such an item is a question: among all new items, which one comes next for this user? Beside the network
stand chance, how often each new item had occurred by then, and how often it did in the whole log, which nobody can know
on day one. The first events of items, before which nobody had met them, are measured apart.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from model.nets.nova import Nova
from training.data.histories import Histories
from training.data.interactions import Log
from training.evaluation.bootstrap import estimate_intervals
from training.evaluation.metrics import measure_ranks
from training.evaluation.protocol import SEED
from training.evaluation.ranking import NetworkScorer
from training.fit.fit import fit
from training.logs.items import read_items
from training.logs.reader import read_log
from training.publish.new_items import add_items
from training.recipe import Recipe, read_recipe
from training.runs.networks import load_network
from training.runs.run import Run

METRICS = ("HR@10", "NDCG@10")
AT_ONCE = 256


def main() -> int:
    """Train, add the new items, rank them, and print a table; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.new_items", description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("items", type=Path)
    parser.add_argument("--recipe", default="nova")
    parser.add_argument(
        "--share", type=float, default=0.5, help="of the events, the newest, that are asked about (0.5)"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for the older log and the run")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="SECTION.KEY=VALUE")
    options = parser.parse_args()
    recipe = read_recipe(options.recipe, ["model.id_dropout=0.2", *options.settings])
    log = read_log(options.log, recipe.data)
    assert log.timestamps_ms is not None  # noqa: S101 - the recipe's data has times
    moment = int(np.quantile(log.timestamps_ms, 1 - options.share))
    run = _train(recipe, log, moment, options)
    found = _ask(run, log, moment, options)
    (options.work / "newcomers.json").write_text(json.dumps(found, indent=2) + "\n")
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


def _train(recipe: Recipe, log: Log, moment: int, options: argparse.Namespace) -> Run:
    """Fit on the events before the moment alone, the new items being in no vocabulary."""
    assert log.timestamps_ms is not None  # noqa: S101 - as above
    users, _ = log.histories.flatten()
    old = log.timestamps_ms < moment
    table = pl.DataFrame(
        {
            "user": np.array(log.user_ids)[users[old]],
            "item": np.array(log.vocabulary.item_ids)[log.items[old] - 1],
            "timestamp": log.timestamps_ms[old],
        }
    )
    options.work.mkdir(parents=True, exist_ok=True)
    older = options.work / "older.csv"
    table.write_csv(older)
    plain = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, format="csv"))
    fit(plain, older, options.work / "run", resume=True, items=options.items, stop=lambda: False)
    return Run.open(options.work / "run")


def _ask(run: Run, log: Log, moment: int, options: argparse.Namespace) -> dict[str, object]:
    """Rank every new item that was met among all of them."""
    network = load_network(run)
    assert isinstance(network, Nova)  # noqa: S101 - other recipes have no new items
    known = read_items(options.items)
    new_ids = [item for item in log.vocabulary.item_ids if item not in run.vocabulary and item in known]
    larger, vocabulary = add_items(run, network, {item: known[item] for item in new_ids})
    new = vocabulary.encode([item for item in new_ids if item in vocabulary])
    items = np.append(0, vocabulary.encode(log.vocabulary.item_ids))[log.items]  # -1: nothing is known of it
    users, _ = log.histories.flatten()
    positions = np.flatnonzero(np.isin(items, new) & (np.arange(len(items)) > log.offsets[users]))
    kept = items >= 0
    before = np.append(0, np.cumsum(kept))
    flat = items[kept].astype(np.int32)
    histories = Histories(flat, before[log.offsets[users[positions]]], before[positions])
    asked = histories.lengths > 0
    histories, positions = histories.select(np.flatnonzero(asked)), positions[asked]
    targets = np.searchsorted(new, items[positions])
    scorers = {
        run.recipe.name: _score(larger, histories, new),
        "chance": np.zeros((len(positions), len(new))),
        "met so far": _count(log, items, new, positions, so_far=True),
        "met in the whole log": _count(log, items, new, positions, so_far=False),
    }
    owners = users[positions]
    first = np.take_along_axis(scorers["met so far"], targets[:, None], axis=1)[:, 0] == 0
    return {
        "moment_ms": moment,
        "trained_events": int((log.timestamps_ms < moment).sum()) if log.timestamps_ms is not None else 0,
        "new_items": len(new),
        "questions": len(positions),
        "users": len(np.unique(owners)),
        "ranked_by": {name: _measure(scores, targets, owners) for name, scores in scorers.items()},
        "first_questions": int(first.sum()),
        "first_ranked_by": {
            name: _measure(scores[first], targets[first], owners[first]) for name, scores in scorers.items()
        },
    }


def _score(network: Nova, histories: Histories, new: NDArray[np.int32]) -> NDArray[np.float64]:
    scorer = NetworkScorer(network)
    parts = [
        scorer.score(histories.select(slice(begin, begin + AT_ONCE)))[:, new - 1].double().numpy()
        for begin in range(0, len(histories), AT_ONCE)
    ]
    return np.concatenate(parts)


def _count(
    log: Log, items: NDArray[np.int32], new: NDArray[np.int32], positions: NDArray[np.int64], *, so_far: bool
) -> NDArray[np.float64]:
    """How often each new item was met before each question, or at all but for the question's own event (Q, N)."""
    assert log.timestamps_ms is not None  # noqa: S101 - as above
    met = np.flatnonzero(np.isin(items, new))
    columns, times = np.searchsorted(new, items[met]), log.timestamps_ms[met]
    counts = np.zeros((len(positions), len(new)))
    for row, place in enumerate(positions):
        counted = times < log.timestamps_ms[place] if so_far else met != place
        counts[row] = np.bincount(columns[counted], minlength=len(new))
    return counts


def _measure(scores: NDArray[np.float64], targets: NDArray[np.int64], owners: NDArray[np.int64]) -> dict[str, object]:
    """Means over users of their questions, with 95 % intervals by bootstrap over users."""
    own = np.take_along_axis(scores, targets[:, None], axis=1)
    greater, ties = (scores > own).sum(axis=1), (scores == own).sum(axis=1) - 1
    measured = measure_ranks(greater, ties)
    _, rows, counts = np.unique(owners, return_inverse=True, return_counts=True)
    values = np.stack([np.bincount(rows, weights=measured[name]) / counts for name in METRICS], axis=1)
    low, high = estimate_intervals(values, SEED)
    return {
        name: {"value": float(values[:, column].mean()), "low": float(low[column]), "high": float(high[column])}
        for column, name in enumerate(METRICS)
    }


if __name__ == "__main__":
    sys.exit(main())
