"""nextitem-train: the commands and what they print. torch is imported by those that need it only."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.arguments import make_parser
from training.errors import InputError, TrainingError
from training.model_recipe import COUNTERS, CounterRecipe
from training.recipe import DataRecipe, Recipe, make_recipe, read_recipe

if TYPE_CHECKING:
    import polars as pl

    from training.run import Run

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0: done, 2: what was given cannot be used, 130: interrupted, 1: anything else."""
    options = make_parser().parse_args(arguments)
    try:
        code = COMMANDS[options.command](options)
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


def _fit(options: argparse.Namespace) -> int:
    recipe = read_recipe(options.recipe, options.settings)
    from training.experiment import fit  # noqa: PLC0415 - imports torch
    from training.interrupt import Interrupt  # noqa: PLC0415
    from training.results import format_metrics, format_strength, format_verdict  # noqa: PLC0415

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
    _say(format_metrics(results["models"], protocol=results["protocol"], users=results["users"]))
    if "comparison" in results:
        _say(format_verdict(results["comparison"]))
    if recipe.rules is not None:
        _say(format_strength(results["rules"]))
    _say(f"Kept epoch {results['kept_epoch']} of {results['epochs']} ({results['stopped_because']}); see {options.out}")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    seed = _read_seed(options)
    from training.examination import mark_counter, mark_run, name_protocol  # noqa: PLC0415 - imports torch
    from training.protocol import PROTOCOLS  # noqa: PLC0415
    from training.results import describe_evaluation, format_metrics  # noqa: PLC0415

    if options.what in COUNTERS:
        if options.popularity_discount is not None:
            raise InputError("--popularity-discount is for the runs of transformers")
        name = options.what
        protocol = PROTOCOLS[options.protocol or "P2"]
        recipe = _read_settings({"model": {"network": name}}, options.settings, ("data", "model"))
        assert isinstance(recipe.model, CounterRecipe)  # noqa: S101 - as its name says
        exam, marks = mark_counter(
            recipe.model, options.data, recipe.data, protocol, seed=seed, train_only=options.train_only
        )
    else:
        if options.train_only:
            raise InputError("--train-only is for counters: a run has seen what it was trained on")
        run = _open_run(Path(options.what), options.popularity_discount)
        name = run.recipe.name
        protocol = PROTOCOLS[options.protocol or name_protocol(run.recipe.data)]
        data = _read_data_settings(run.config["recipe"]["data"], options.settings)
        exam, marks = mark_run(run, options.data, data, protocol, seed=seed)
    result = describe_evaluation(marks, exam)
    if options.json:
        _say(json.dumps(result, indent=2, allow_nan=False))
    else:
        _say(format_metrics({name: result["metrics"]}, protocol=result["protocol"], users=result["users"]))
    return 0


def _compare(options: argparse.Namespace) -> int:
    seed = _read_seed(options)
    if options.protocol and not options.data:
        raise InputError("--protocol wants --data FILE: what runs wrote of their tests is of their own protocol")
    from model.contract.files import write_whole  # noqa: PLC0415
    from training.comparison import compare_on, compare_runs, format_comparison, require_distinct  # noqa: PLC0415 - torch
    from training.side_by_side import draw_comparison  # noqa: PLC0415 - imports matplotlib

    require_distinct(options.names)
    if options.data:
        document = compare_on(options.names, options.data, options.protocol, seed, average_seeds=options.average_seeds)
    else:
        runs = [_open_run(Path(name)) for name in options.names]
        document = compare_runs(runs, seed, average_seeds=options.average_seeds)
    write_whole(options.out, draw_comparison(document))
    if options.json:
        del document["epochs"]
        _say(json.dumps(document, indent=2, allow_nan=False))
    else:
        _say(format_comparison(document))
        _complain(f"drawn in {options.out}")
    return 0


def _benchmark(options: argparse.Namespace) -> int:
    from training.benchmark.command import run_benchmark  # noqa: PLC0415 - imports torch and matplotlib
    from training.benchmark.work import Plan  # noqa: PLC0415
    from training.interrupt import Interrupt  # noqa: PLC0415

    plan = Plan(
        data=options.data,
        items=options.items,
        name=options.name or options.data.name.partition(".")[0],
        models=options.models,
        protocols=options.protocols,
        seeds=options.seeds,
        settings=options.settings,
        out=options.out,
        runs=options.runs,
    )
    with Interrupt() as interrupt:
        tables = run_benchmark([plan], interrupt.is_asked)
    if tables is None:
        _complain("stopped, and what is finished is kept: the same command goes on")
        return 128 + (interrupt.received or INTERRUPTED - 128)
    _say(tables)
    _complain(f"written to {options.out}: benchmark.md, benchmark.csv and benchmark.png")
    return 0


def _attention(options: argparse.Namespace) -> int:
    run = _open_run(options.path)
    data = _read_data_settings(run.config["recipe"]["data"], options.settings)
    from model.contract.files import write_whole  # noqa: PLC0415
    from training.examination import map_attention  # noqa: PLC0415 - imports torch
    from training.heat_map import draw_attention  # noqa: PLC0415 - imports matplotlib

    found = map_attention(run, options.data, data)
    write_whole(options.out, draw_attention(found, run.recipe.model.network))
    _complain(f"drawn in {options.out}: {found.users} of {found.asked} test histories")
    return 0


def _describe(options: argparse.Namespace) -> int:
    from training.reader import read_log  # noqa: PLC0415 - imports polars
    from training.statistics import describe_log, format_statistics  # noqa: PLC0415

    found = describe_log(read_log(options.data, _read_data_settings({}, options.settings)))
    _say(json.dumps(found, indent=2) if options.json else format_statistics(options.data.name, found))
    return 0


def _publish(options: argparse.Namespace) -> int:
    run = _open_run(options.path, options.popularity_discount)
    from training.publish import publish_run  # noqa: PLC0415 - imports torch and ONNX

    folder = publish_run(run, options.out, options.items, neighbours=options.neighbours, scan=options.scan)
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

    out = options.out or Path("artifacts") / options.name
    data_set = movielens.DATA_SETS[options.name]
    if movielens.fetch(data_set, out):
        _say(data_set.licence)
    _say(f"{out / movielens.INTERACTIONS} and {out / movielens.ITEMS} are there")
    return 0


def _open_run(path: Path, discount: float | None = None) -> "Run":
    from training.run import Run  # noqa: PLC0415 - imports torch

    run = Run.open(path)
    if discount is not None:
        run.discount_popularity(discount)
    return run


def _read_data_settings(begun: dict[str, object], settings: Sequence[str]) -> DataRecipe:
    """The [data] section that a run began with, with settings over it."""
    return _read_settings({"data": begun}, settings, ("data",)).data


def _read_settings(begun: dict[str, dict[str, object]], settings: Sequence[str], sections: Sequence[str]) -> Recipe:
    for setting in settings:
        if not setting.startswith(tuple(f"{section}." for section in sections)):
            known = " and ".join(f"{section}.*" for section in sections)
            raise InputError(f"--set {setting}: only {known} matter{'s' * (len(sections) == 1)} here")
    return make_recipe(begun, settings)


def _read_seed(options: argparse.Namespace) -> int:
    from training.protocol import SEED  # noqa: PLC0415 - imports numpy

    if options.seed is None:
        return SEED
    if options.seed < 0:
        raise InputError("--seed starts at 0")
    return int(options.seed)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "fit": _fit,
    "evaluate": _evaluate,
    "describe": _describe,
    "compare": _compare,
    "attention": _attention,
    "benchmark": _benchmark,
    "publish": _publish,
    "recommend": _recommend,
    "fetch": _fetch,
}


if __name__ == "__main__":
    sys.exit(main())
