"""The commands of nextitem-train and their output. Only commands that need torch import it."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model.extras import explain_missing
from training.arguments.names import AUTO
from training.arguments.parser import make_parser
from training.errors import InputError, TrainingError
from training.recipe import DataRecipe, Recipe, make_recipe, read_recipe
from training.recipe_models import BASELINES, BaselineRecipe

if TYPE_CHECKING:
    from training.runs.run import Run

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status.

    0 done, 2 unusable input, 3 a retrained model that is not good enough, 130 interrupted, 1 any other failure.
    """
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
    except ModuleNotFoundError as error:
        sys.stderr.write(explain_missing(error, "nextitem-train", "training") + "\n")
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of the output is gone
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
    out = options.out or Path("runs") / Path(options.recipe).stem
    if options.recipe == AUTO:
        begun = time.monotonic()  # the minutes hold the imports, too
        from training.auto.command import run_auto  # noqa: PLC0415 - imports torch

        return run_auto(options, out, begun)
    if options.minutes is not None:
        raise InputError("--minutes is for fit without a recipe; a recipe has train.budget_seconds, for training alone")
    start = ["train.item_init=vectors"] if options.item_vectors else []
    recipe = read_recipe(options.recipe, [*options.settings, *start])
    from training.evaluation.results import find_weakness, format_results, format_verdict, format_weights  # noqa: PLC0415
    from training.fit.fit import fit  # noqa: PLC0415 - imports torch
    from training.fit.interrupt import Interrupt  # noqa: PLC0415
    from training.tracking.trackers import choose_trackers  # noqa: PLC0415

    trackers = choose_trackers(tensorboard=options.tensorboard, mlflow=options.mlflow)
    with Interrupt() as interrupt:
        results = fit(
            recipe,
            options.data,
            out,
            resume=options.resume,
            items=options.items,
            stop=interrupt.is_asked,
            trackers=trackers,
            item_vectors=options.item_vectors,
            report=True,
        )
    if results is None:
        _complain(f"stopped; saved in {out}: run the same command with --resume to continue")
        return 128 + (interrupt.received or INTERRUPTED - 128)
    _say(format_results(results, results["models"]))
    if "comparison" in results:
        _say(format_verdict(results["comparison"], results["users"]))
    for sentence in format_weights(results):
        _say(sentence)
    seen = out / "report.html" if (out / "report.html").is_file() else out
    _say(f"Kept epoch {results['kept_epoch']} of {results['epochs']} ({results['stopped_because']}); see {seen}")
    weakness = find_weakness(results)
    if weakness:
        _complain(f"WARNING: {weakness}; train longer or use another recipe before you publish {out}")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    seed = _read_seed(options)
    from training.evaluation.protocol import PROTOCOLS  # noqa: PLC0415
    from training.evaluation.results import describe_evaluation, format_results  # noqa: PLC0415
    from training.runs.evaluate import evaluate_baseline, evaluate_run, name_protocol  # noqa: PLC0415 - imports torch

    treatment = {"seen_items": options.seen_items, "repeated_targets": options.repeated_targets}
    if options.what in BASELINES:
        if options.popularity_discount is not None:
            raise InputError("--popularity-discount applies to runs of transformers only")
        name = options.what
        protocol = PROTOCOLS[options.protocol or "P2"].vary(**treatment)
        recipe = _read_settings({"model": {"name": name}}, options.settings, ("data", "model"))
        assert isinstance(recipe.model, BaselineRecipe)  # noqa: S101 - the name is one of BASELINES
        task, scores = evaluate_baseline(
            recipe.model, options.data, recipe.data, protocol, seed=seed, train_only=options.train_only
        )
    else:
        if options.train_only:
            raise InputError("--train-only applies to baselines only: a run is already trained")
        run = _open_run(Path(options.what), options.popularity_discount)
        name = run.recipe.name
        protocol = PROTOCOLS[options.protocol or name_protocol(run.recipe.data)].vary(**treatment)
        data = _read_data_settings(run.recipe.to_dict()["data"], options.settings)
        task, scores = evaluate_run(run, options.data, data, protocol, seed=seed)
    result = describe_evaluation(scores, task)
    if options.json:
        _say(json.dumps(result, indent=2, allow_nan=False))
    else:
        _say(format_results(result, {name: result["metrics"]}))
    return 0


def _compare(options: argparse.Namespace) -> int:
    seed = _read_seed(options)
    if options.protocol and not options.data:
        raise InputError("--protocol needs --data FILE: the stored test results of a run have the protocol of that run")
    from model.contract.atomic_files import write_whole  # noqa: PLC0415
    from training.plots.comparison import draw_comparison  # noqa: PLC0415 - imports matplotlib
    from training.runs.compare import compare_on, compare_runs, format_comparison, require_distinct  # noqa: PLC0415 - torch

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
        _complain(f"plot written to {options.out}")
    return 0


def _benchmark(options: argparse.Namespace) -> int:
    from training.benchmark.command import run_benchmark  # noqa: PLC0415 - imports torch and matplotlib
    from training.benchmark.plan import Plan  # noqa: PLC0415
    from training.fit.interrupt import Interrupt  # noqa: PLC0415

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
        _complain("stopped; finished cells are kept: run the same command to continue")
        return 128 + (interrupt.received or INTERRUPTED - 128)
    _say(tables)
    _complain(f"written to {options.out}: benchmark.md, benchmark.csv and benchmark.png")
    return 0


def _sweep(options: argparse.Namespace) -> int:
    from training.sweep.entry import run_command  # noqa: PLC0415 - imports torch, Optuna and matplotlib

    return run_command(options)


def _attention(options: argparse.Namespace) -> int:
    run = _open_run(options.path)
    data = _read_data_settings(run.recipe.to_dict()["data"], options.settings)
    from model.contract.atomic_files import write_whole  # noqa: PLC0415
    from training.plots.attention_map import draw_attention  # noqa: PLC0415 - imports matplotlib
    from training.runs.evaluate import map_attention  # noqa: PLC0415 - imports torch

    found = map_attention(run, options.data, data)
    write_whole(options.out, draw_attention(found, run.recipe.model.name))
    _complain(f"plot written to {options.out}: {found.users} of {found.questions} test histories")
    return 0


def _report(options: argparse.Namespace) -> int:
    run = _open_run(options.path)
    from training.report.report import report_run  # noqa: PLC0415 - imports torch

    _complain(f"report written to {report_run(run, options.data, options.items)}")
    return 0


def _describe(options: argparse.Namespace) -> int:
    from training.data.describe import describe_log, format_statistics  # noqa: PLC0415
    from training.logs.reader import read_log  # noqa: PLC0415 - imports polars

    found = describe_log(read_log(options.data, _read_data_settings({}, options.settings), announce=False))
    _say(json.dumps(found, indent=2) if options.json else format_statistics(options.data.name, found))
    return 0


def _publish(options: argparse.Namespace) -> int:
    run = _open_run(options.path, options.popularity_discount)
    from training.evaluation.results import find_weakness  # noqa: PLC0415
    from training.publish.publish import describe_filters, publish_run  # noqa: PLC0415 - imports torch and ONNX

    folder = publish_run(
        run,
        options.out,
        options.items,
        neighbours=options.neighbours,
        rules=options.rules,
        similar=options.similar,
        scan=options.item_scoring,
        as_candidate=options.candidate,
        force=options.force,
    )
    _say(f"published {folder} and {'put it on trial as the candidate' if options.candidate else 'made it current'}")
    columns, others = describe_filters(folder)
    if columns:
        _say(f"its items can be filtered by {', '.join(columns)}")
    for other in others:
        _complain(f"its items cannot be filtered by {other}")
    weakness = find_weakness(run.read_results())
    if weakness:
        _complain(f"WARNING: {weakness}; published anyway")
    return 0


def _retrain(options: argparse.Namespace) -> int:
    if options.check:
        from training.retrain.rounds import check_rounds  # noqa: PLC0415 - the others import torch

        check_rounds(options.runs)
        return 0
    from training.retrain.command import run_retrain  # noqa: PLC0415 - imports torch and ONNX

    return run_retrain(options)


def _recommend(options: argparse.Namespace) -> int:
    if options.k < 1:
        raise InputError("-k must be at least 1")
    suffix = Path(options.out).suffix
    if options.out != "-" and suffix not in {".parquet", ".csv"}:
        raise InputError(f"--out {options.out}: the file name must end in .parquet or .csv")
    run = _open_run(options.path)
    data = _read_data_settings(run.recipe.to_dict()["data"], options.settings)
    from training.publish.recommend_offline import format_lists, recommend, write_lists  # noqa: PLC0415 - imports torch

    users = None if options.users == "all" else [user for user in options.users.split(",") if user]
    lists = recommend(run, options.data, data, users, options.k)
    if options.out == "-":
        _say(format_lists(lists))
        return 0
    target = Path(options.out)
    write_lists(lists, target)
    _complain(f"{len(lists)} rows for {lists['user'].n_unique()} users in {target}")
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from training.data import movielens  # noqa: PLC0415 - imports httpx

    out = options.out or Path("artifacts") / options.name
    data_set = movielens.DATA_SETS[options.name]
    if movielens.fetch(data_set, out):
        _say(data_set.licence)
    _say(f"{out / movielens.INTERACTIONS} and {out / movielens.ITEMS} are ready")
    return 0


def _open_run(path: Path, discount: float | None = None) -> "Run":
    from training.runs.run import Run  # noqa: PLC0415 - imports torch

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
            raise InputError(f"--set {setting}: this command reads only {known}")
    return make_recipe(begun, settings)


def _read_seed(options: argparse.Namespace) -> int:
    from training.evaluation.protocol import SEED  # noqa: PLC0415 - imports numpy

    if options.seed is None:
        return SEED
    if options.seed < 0:
        raise InputError("--seed must be at least 0")
    return int(options.seed)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "fit": _fit,
    "evaluate": _evaluate,
    "describe": _describe,
    "compare": _compare,
    "sweep": _sweep,
    "attention": _attention,
    "report": _report,
    "benchmark": _benchmark,
    "publish": _publish,
    "retrain": _retrain,
    "recommend": _recommend,
    "fetch": _fetch,
}


if __name__ == "__main__":
    sys.exit(main())
