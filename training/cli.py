"""nextitem-train: the commands, their arguments and what they print. torch is imported by those that need it only."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.errors import InputError, TrainingError
from training.recipe import DataRecipe, make_recipe, read_recipe

if TYPE_CHECKING:
    import polars as pl

    from training.run import Run

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0: done, 2: what was given cannot be used, 130: interrupted, 1: anything else."""
    options = _make_parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _complain("stopped")
        return INTERRUPTED
    except TrainingError as error:
        _complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read the output left: no more of it
        return 1
    except OSError as error:
        _complain(f"{error.filename or 'input or output'}: {error.strerror or error}")
        return 1
    return code


def _complain(message: str) -> None:
    sys.stderr.write(f"nextitem-train: {message}\n")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nextitem-train", description="Make next-item recommenders from interaction logs."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    fit = commands.add_parser("fit", help="train by a recipe")
    fit.add_argument("recipe", metavar="RECIPE", help="a recipe's name (demo, bert4rec) or the path of a .toml file")
    _add_data(fit)
    fit.add_argument("--out", type=Path, required=True, metavar="RUN", help="the run's folder")
    fit.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    fit.add_argument("--items", type=Path, metavar="FILE", help="CSV or TSV with an item column, kept for publish")
    fit.set_defaults(run=_fit)

    evaluate = commands.add_parser("evaluate", help="test metrics of a run or a baseline")
    evaluate.add_argument("what", metavar="RUN|pop|markov", help="a run's folder or a baseline")
    _add_data(evaluate)
    evaluate.add_argument("--json", action="store_true", help="print JSON")
    evaluate.set_defaults(run=_evaluate)

    publish = commands.add_parser("publish", help="write a finished run as a bundle and make it current")
    publish.add_argument("path", type=Path, metavar="RUN")
    publish.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of all bundles")
    publish.add_argument("--items", type=Path, metavar="FILE", help="CSV or TSV with an item column: metadata")
    publish.set_defaults(run=_publish)

    recommend = commands.add_parser("recommend", help="rank unseen items for users of a log")
    recommend.add_argument("path", type=Path, metavar="RUN")
    _add_data(recommend)
    recommend.add_argument("--users", required=True, metavar="u1,u2|all", help="user ids, or all")
    recommend.add_argument("-k", type=int, default=10, help="items for each user (10)")
    recommend.add_argument("--out", default="-", metavar="FILE", help=".parquet, .csv, or - for a table (-)")
    recommend.set_defaults(run=_recommend)

    fetch = commands.add_parser("fetch", help="get a public data set")
    fetch.add_argument("name", choices=["ml-100k"])
    fetch.add_argument("--out", type=Path, default=Path("artifacts/ml-100k"), metavar="DIR")
    fetch.set_defaults(run=_fetch)
    return parser


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FILE", help="CSV, TSV, Parquet, or `user item` lines as .txt"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="SECTION.KEY=VALUE", help="over the recipe"
    )


def _fit(options: argparse.Namespace) -> int:
    recipe = read_recipe(options.recipe, options.settings)
    from training.experiment import fit  # noqa: PLC0415 - imports torch
    from training.interrupt import Interrupt  # noqa: PLC0415
    from training.results import format_metrics, format_verdict  # noqa: PLC0415

    with Interrupt() as interrupt:
        results = fit(
            recipe,
            options.data,
            options.out,
            resume=options.resume,
            items=options.items,
            stop=interrupt.is_asked,
        )
    if results is None:
        _complain(f"stopped, and saved in {options.out}: the same command with --resume goes on")
        return 128 + (interrupt.received or INTERRUPTED - 128)
    _say(format_metrics(results["models"], users=results["users"]))
    _say(format_verdict(results["comparison"]))
    _say(f"Kept epoch {results['kept_epoch']} of {results['epochs']} ({results['stopped_because']}); see {options.out}")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from training.experiment import BASELINES, evaluate_baseline, evaluate_run  # noqa: PLC0415 - imports torch
    from training.results import format_metrics  # noqa: PLC0415

    if options.what in BASELINES:
        result = evaluate_baseline(options.what, options.data, _read_data_settings({}, options.settings))
    else:
        run = _open_run(Path(options.what))
        result = evaluate_run(run, options.data, _read_data_settings(run.config["recipe"]["data"], options.settings))
    if options.json:
        _say(json.dumps(result, indent=2, allow_nan=False))
    else:
        name = options.what if options.what in BASELINES else "bert4rec"
        _say(format_metrics({name: result["metrics"]}, users=result["users"]))
    return 0


def _publish(options: argparse.Namespace) -> int:
    run = _open_run(options.path)
    from training.publish import publish_run  # noqa: PLC0415 - imports torch and ONNX

    folder = publish_run(run, options.out, options.items)
    _say(f"published {folder} and made it current")
    return 0


def _recommend(options: argparse.Namespace) -> int:
    if options.k < 1:
        raise InputError("-k starts at 1")
    suffix = Path(options.out).suffix
    if options.out != "-" and suffix not in {".parquet", ".csv"}:
        raise InputError(f"--out {options.out}: lists are written as .parquet or .csv")
    run = _open_run(options.path)
    data = _read_data_settings(run.config["recipe"]["data"], options.settings)
    from training.lists import recommend  # noqa: PLC0415 - imports torch

    users = None if options.users == "all" else [user for user in options.users.split(",") if user]
    lists = recommend(run, options.data, data, users, options.k)
    if options.out == "-":
        _say(_format_lists(lists))
        return 0
    target = Path(options.out)
    aside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        if suffix == ".parquet":
            lists.write_parquet(aside)
        else:
            lists.write_csv(aside)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    _complain(f"{len(lists)} rows for {lists['user'].n_unique()} users in {target}")
    return 0


def _format_lists(lists: "pl.DataFrame") -> str:
    user_width = max((len(user) for user in lists["user"]), default=4)
    item_width = max((len(item) for item in lists["item"]), default=4)
    head = f"{'user':<{user_width}}  rank  {'item':<{item_width}}  score"
    rows = (
        f"{user:<{user_width}}  {rank:>4}  {item:<{item_width}}  {score:.4f}"
        for user, rank, item, score in lists.iter_rows()
    )
    return "\n".join([head, *rows])


def _fetch(options: argparse.Namespace) -> int:
    from training import movielens  # noqa: PLC0415 - imports httpx

    if movielens.fetch(options.out):
        _say(movielens.LICENCE)
    _say(f"{options.out / movielens.INTERACTIONS} and {options.out / movielens.ITEMS} are there")
    return 0


def _open_run(path: Path) -> "Run":
    from training.run import Run  # noqa: PLC0415 - imports torch

    return Run.open(path)


def _read_data_settings(begun: dict[str, object], settings: Sequence[str]) -> DataRecipe:
    """The [data] section that a run began with, with settings over it."""
    for setting in settings:
        if not setting.startswith("data."):
            raise InputError(f"--set {setting}: only data.* matters here")
    return make_recipe({"data": begun}, settings).data


if __name__ == "__main__":
    sys.exit(main())
