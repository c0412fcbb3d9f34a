"""nextitem-train's arguments. Nothing heavy is imported for them, so that --help is instant."""

import argparse
from pathlib import Path

PROTOCOL_NAMES = ("P1", "P1a", "P2", "P5", "P6s", "P7", "time")
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
    fit.add_argument("--items", type=Path, metavar="FILE", help="CSV or TSV with an item column, kept for publish")

    evaluate = commands.add_parser("evaluate", help="test metrics of a run or a baseline")
    evaluate.add_argument("what", metavar="RUN|pop|markov|rules", help="a run's folder or a baseline")
    _add_data(evaluate)
    evaluate.add_argument(
        "--protocol", choices=PROTOCOL_NAMES, help="how to ask and rank (P2, or time for a run so split)"
    )
    evaluate.add_argument("--seed", type=int, metavar="N", help="of drawn negatives and of intervals (12345)")
    evaluate.add_argument(
        "--train-only", action="store_true", help="P1's popularity without the test events, which its authors count"
    )
    evaluate.add_argument("--json", action="store_true", help="print JSON")

    describe = commands.add_parser("describe", help="count what a log holds, as the papers' Table 1 does")
    _add_data(describe)
    describe.add_argument("--json", action="store_true", help="print JSON")

    compare = commands.add_parser("compare", help="runs side by side, with paired differences and a plot")
    compare.add_argument(
        "names", nargs="+", metavar="RUN", help="folders of runs; with --data also pop, markov and rules"
    )
    compare.add_argument(
        "--data", type=Path, metavar="FILE", help="test anew on this log; without it by what each run wrote of its test"
    )
    compare.add_argument("--protocol", choices=PROTOCOL_NAMES, help="with --data: how to ask and rank")
    compare.add_argument("--seed", type=int, metavar="N", help="of drawn negatives and of intervals (12345)")
    compare.add_argument(
        "--out", type=Path, default=Path("comparison.png"), metavar="PNG", help="the plot (comparison.png)"
    )
    compare.add_argument("--json", action="store_true", help="print JSON")

    attention = commands.add_parser("attention", help="draw where a run's network looks, by layer and head")
    attention.add_argument("path", type=Path, metavar="RUN")
    _add_data(attention)
    attention.add_argument(
        "--out", type=Path, default=Path("attention.png"), metavar="PNG", help="the picture (attention.png)"
    )

    publish = commands.add_parser("publish", help="write a finished run as a bundle and make it current")
    publish.add_argument("path", type=Path, metavar="RUN")
    publish.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of all bundles")
    publish.add_argument("--items", type=Path, metavar="FILE", help="CSV or TSV with an item column: metadata")
    publish.add_argument(
        "--scan",
        choices=("plain", "float32", "int8"),
        help="how the graph reads the items, answers being the same (by their number; float32 for GPUs)",
    )

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


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FILE", help="CSV, TSV, Parquet, or the literature's lines as .txt"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="SECTION.KEY=VALUE", help="over the recipe"
    )
