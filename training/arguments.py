"""nextitem-train's arguments. Nothing heavy is imported for them, so that --help is instant."""

import argparse
from pathlib import Path

from training.model_recipe import COUNTERS

PROTOCOL_NAMES = ("P1", "P1a", "P2", "P5", "P6s", "P7", "time")
BENCHMARK_MODELS = ("pop", "markov", "rules", "item-knn", "session-knn", "bpr-mf", "fpmc", "gru4rec", "demo")
DATA_SET_NAMES = ("ml-100k", "ml-1m", "ml-20m")


def make_parser() -> argparse.ArgumentParser:
    """The parser; the command's name comes out as `command`."""
    parser = argparse.ArgumentParser(
        prog="nextitem-train", description="Make next-item recommenders from interaction logs."
    )
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")

    fit = commands.add_parser("fit", help="train by a recipe")
    fit.add_argument(
        "recipe", metavar="RECIPE", help="a recipe's name (demo, sasrec-ml-1m) or the path of a .toml file"
    )
    _add_data(fit)
    fit.add_argument("--out", type=Path, required=True, metavar="RUN", help="the run's folder")
    fit.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    fit.add_argument(
        "--items",
        type=Path,
        metavar="FILE",
        help="CSV, TSV or JSON of what is known of items: side information, and metadata for publish",
    )

    evaluate = commands.add_parser("evaluate", help="test metrics of a run or a counter")
    evaluate.add_argument("what", metavar="RUN|COUNTER", help=f"a run's folder or one of {', '.join(COUNTERS)}")
    _add_data(evaluate)
    evaluate.add_argument(
        "--protocol", choices=PROTOCOL_NAMES, help="how to ask and rank (P2, or time for a run so split)"
    )
    evaluate.add_argument("--seed", type=int, metavar="N", help="of drawn negatives and of intervals (12345)")
    evaluate.add_argument(
        "--train-only", action="store_true", help="P1's popularity without the test events, which its authors count"
    )
    _add_discount(evaluate)
    evaluate.add_argument("--json", action="store_true", help="print JSON")

    describe = commands.add_parser("describe", help="count what a log holds, as the papers' Table 1 does")
    _add_data(describe)
    describe.add_argument("--json", action="store_true", help="print JSON")

    compare = commands.add_parser("compare", help="runs side by side, with paired differences and a plot")
    compare.add_argument("names", nargs="+", metavar="RUN", help="folders of runs; with --data also counters by name")
    compare.add_argument(
        "--data", type=Path, metavar="FILE", help="test anew on this log; without it by what each run wrote of its test"
    )
    compare.add_argument("--protocol", choices=PROTOCOL_NAMES, help="with --data: how to ask and rank")
    compare.add_argument("--seed", type=int, metavar="N", help="of drawn negatives and of intervals (12345)")
    compare.add_argument(
        "--average-seeds", action="store_true", help="runs that differ by train.seed alone count as one, user by user"
    )
    compare.add_argument(
        "--out", type=Path, default=Path("comparison.png"), metavar="PNG", help="the plot (comparison.png)"
    )
    compare.add_argument("--json", action="store_true", help="print JSON")

    _add_benchmark(commands.add_parser("benchmark", help="many models on one log: a table, a plot and a verdict"))

    attention = commands.add_parser("attention", help="draw where a run's network looks, by layer and head")
    attention.add_argument("path", type=Path, metavar="RUN")
    _add_data(attention)
    attention.add_argument(
        "--out", type=Path, default=Path("attention.png"), metavar="PNG", help="the picture (attention.png)"
    )

    publish = commands.add_parser("publish", help="write a finished run as a bundle and make it current")
    publish.add_argument("path", type=Path, metavar="RUN")
    publish.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of all bundles")
    publish.add_argument(
        "--items", type=Path, metavar="FILE", help="CSV, TSV or JSON of what is known of items: metadata"
    )
    publish.add_argument(
        "--neighbours",
        type=Path,
        metavar="FILE",
        help="a log whose histories answer, as session-knn does, while the network cannot",
    )
    publish.add_argument(
        "--scan",
        choices=("plain", "float32", "int8"),
        help="how the graph reads the items, answers being the same (by their number; float32 for GPUs)",
    )

    _add_discount(publish)

    recommend = commands.add_parser("recommend", help="rank unseen items for users of a log")
    recommend.add_argument("path", type=Path, metavar="RUN")
    _add_data(recommend)
    recommend.add_argument("--users", required=True, metavar="u1,u2|all", help="user ids, or all")
    recommend.add_argument("-k", type=int, default=10, help="items for each user (10)")
    recommend.add_argument("--out", default="-", metavar="FILE", help=".parquet, .csv, or - for a table (-)")

    fetch = commands.add_parser("fetch", help="get a public data set")
    fetch.add_argument("name", choices=DATA_SET_NAMES)
    fetch.add_argument("--out", type=Path, metavar="DIR", help="where to put it (artifacts/NAME)")
    return parser


def _add_benchmark(benchmark: argparse.ArgumentParser) -> None:
    _add_data(benchmark)
    benchmark.add_argument(
        "--models", type=_split, default=BENCHMARK_MODELS, metavar="A,B", help=f"recipes ({','.join(BENCHMARK_MODELS)})"
    )
    benchmark.add_argument(
        "--protocols", type=_split_protocols, metavar="P1,P2", help="how to ask and rank (P2, or time)"
    )
    benchmark.add_argument(
        "--items",
        type=Path,
        metavar="FILE",
        help="CSV, TSV or JSON of what is known of items, for recipes that read it",
    )
    benchmark.add_argument("--seeds", type=_split_seeds, default=(1,), metavar="1,2,3", help="of trained models (1)")
    benchmark.add_argument("--name", metavar="NAME", help="what the data is called in tables (the file's name)")
    benchmark.add_argument(
        "--out",
        type=Path,
        default=Path("benchmarks/results/models"),
        metavar="DIR",
        help="finished cells and tables (benchmarks/results/models)",
    )
    benchmark.add_argument(
        "--runs", type=Path, default=Path("runs/benchmark"), metavar="DIR", help="the runs behind them (runs/benchmark)"
    )


def _split(text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part for part in text.split(",") if part))
    if not parts:
        raise argparse.ArgumentTypeError("names nothing")
    return parts


def _split_protocols(text: str) -> tuple[str, ...]:
    parts = _split(text)
    for part in parts:
        if part not in PROTOCOL_NAMES:
            raise argparse.ArgumentTypeError(f"there is no protocol {part}: known are {', '.join(PROTOCOL_NAMES)}")
    return parts


def _split_seeds(text: str) -> tuple[int, ...]:
    parts = _split(text)
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError("seeds are whole numbers of at least 0")
    return tuple(map(int, parts))


def _add_discount(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--popularity-discount",
        type=float,
        metavar="X",
        help="how much an item's popularity counts against it, in place of the run's model.popularity_discount",
    )


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV, TSV, Parquet, the literature's lines as .txt, or the folder of a service's archive",
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="SECTION.KEY=VALUE", help="over the recipe"
    )
