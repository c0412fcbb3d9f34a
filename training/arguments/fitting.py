"""Commands that train: fit, sweep, retrain."""

import argparse
from pathlib import Path

from training.arguments.log import add_log_arguments
from training.arguments.names import AUTO, MINUTES, SWEEP_PRESETS
from training.arguments.shared import read_count, read_duration, read_minutes, read_seconds


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fit`."""
    parser.add_argument(
        "recipe",
        nargs="?",
        default=AUTO,
        metavar="RECIPE",
        help="name of a shipped recipe (bert4rec-small, sasrec-ml-1m) or path of a .toml file; without one, auto: what "
        "the log asks for is chosen, explained, trained within --minutes and compared with every cheap model",
    )
    add_log_arguments(parser)
    parser.add_argument("--out", type=Path, metavar="RUN", help="folder of the run (default: runs/RECIPE)")
    parser.add_argument(
        "--minutes",
        type=read_minutes,
        metavar="N",
        help=f"without a recipe: how long all of it may take, validation and tests included (default: {MINUTES:g})",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue a stopped run, or extend a finished one with more train.epochs or train.budget_seconds",
    )
    parser.add_argument(
        "--items",
        type=Path,
        metavar="FILE",
        help="item metadata as CSV, TSV or JSON: side information for the model, and metadata for publish",
    )
    parser.add_argument(
        "--item-vectors",
        type=Path,
        metavar="FILE",
        help="vectors of items, such as embeddings of their texts, to begin with: .parquet or .npz",
    )
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        help="write TensorBoard's event files into the folder tensorboard of the run",
    )
    parser.add_argument(
        "--mlflow", metavar="URI", help="tell an MLflow server, or a database such as sqlite:///mlflow.db, of the run"
    )


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sweep`."""
    parser.add_argument("recipe", metavar="RECIPE", help="name of a shipped recipe or path of a .toml file")
    add_log_arguments(parser)
    parser.add_argument(
        "--try",
        action="append",
        dest="tried",
        default=[],
        metavar="SECTION.KEY=VALUES",
        help="values of a key of the recipe, a,b,c, or a range, low..high or low..high:step; once for each key",
    )
    parser.add_argument("--preset", choices=SWEEP_PRESETS, help="a sweep or an ablation of a paper, as a grid")
    parser.add_argument("--grid", action="store_true", help="try every combination, instead of those that promise most")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the sweep")
    parser.add_argument(
        "--trials",
        type=read_count,
        metavar="N",
        help="trials in all, those of earlier starts among them (default: 20; of a grid all)",
    )
    parser.add_argument(
        "--minutes",
        type=read_minutes,
        metavar="M",
        help="time for all trials together, that of earlier starts included",
    )
    parser.add_argument(
        "--no-prune", action="store_false", dest="prune", help="run every trial to its end, however it begins"
    )
    parser.add_argument("--items", type=Path, metavar="FILE", help="item metadata, for recipes with side information")


def add_retrain(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `retrain`."""
    add_log_arguments(parser)
    parser.add_argument(
        "--bundle",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder that holds all bundles: its champion is the parent",
    )
    parser.add_argument(
        "--runs", type=Path, required=True, metavar="DIR", help="folder of the runs, the champion's too"
    )
    parser.add_argument(
        "--base", type=Path, metavar="FILE", help="log of what came before --data: its events older than the first one"
    )
    parser.add_argument(
        "--items", type=Path, metavar="FILE", help="item metadata as CSV, TSV or JSON (default: what the champion has)"
    )
    parser.add_argument("--recipe", metavar="RECIPE", help="name or path of a recipe (default: the champion's)")
    parser.add_argument(
        "--start",
        choices=("warm", "shrunk", "cold"),
        default="warm",
        help="weights to begin with: the champion's and a quarter of the epochs, the same shrunk, or new ones "
        "(default: warm)",
    )
    parser.add_argument("--budget", type=read_seconds, metavar="SECONDS", help="time limit of both trainings together")
    parser.add_argument(
        "--every", type=read_duration, metavar="TIME", help="run forever and retrain every so often: 24h, 30m, 7d"
    )
    parser.add_argument(
        "--if-needed",
        action="store_true",
        help="only if the newest day has over 5 %% unknown items, or the champion's live NDCG@10 fell by a tenth",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check that the last round of --every ended well and in time, then exit: status 0 if it did",
    )
    parser.add_argument("--replace", action="store_true", help="also if a candidate is on trial, in place of that one")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, train nothing and write nothing"
    )
