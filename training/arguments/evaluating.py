"""Commands that measure, compare and show: evaluate, compare, benchmark, describe, attention, report."""

import argparse
from pathlib import Path

from training.arguments.log import add_log_arguments
from training.arguments.names import BENCHMARK_MODELS, PROTOCOLS, REPEATED_TARGETS, SEEN_ITEMS
from training.arguments.shared import add_discount, read_protocol, split, split_protocols, split_seeds
from training.recipe_models import BASELINES


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `evaluate`."""
    parser.add_argument("what", metavar="RUN|BASELINE", help=f"folder of a run, or one of {', '.join(BASELINES)}")
    add_log_arguments(parser)
    parser.add_argument(
        "--protocol",
        type=read_protocol,
        metavar="NAME",
        help=f"evaluation protocol: {PROTOCOLS} (default: full; time for a run with data.split = time)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of sampled negatives and of intervals (default: 12345)"
    )
    parser.add_argument(
        "--train-only",
        action="store_true",
        help="with pop under P1: do not count test events, which the paper's authors do",
    )
    parser.add_argument(
        "--seen-items", choices=SEEN_ITEMS, help="items of the history as candidates (default: as the protocol has it)"
    )
    parser.add_argument(
        "--repeated-targets",
        choices=REPEATED_TARGETS,
        help="targets that the user had met before: candidates, missed, or not asked (default: as the protocol has it)",
    )
    add_discount(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `describe`."""
    add_log_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compare`."""
    parser.add_argument("names", nargs="+", metavar="RUN", help="folders of runs; with --data also names of baselines")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="evaluate on this log (default: compare the test results that each run stored)",
    )
    parser.add_argument(
        "--protocol", type=read_protocol, metavar="NAME", help=f"with --data: evaluation protocol: {PROTOCOLS}"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed of sampled negatives and of intervals (default: 12345)"
    )
    parser.add_argument(
        "--average-seeds", action="store_true", help="average runs that differ only in train.seed, user by user"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("comparison.png"),
        metavar="PNG",
        help="file of the plot (default: comparison.png)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_benchmark(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `benchmark`."""
    add_log_arguments(parser)
    parser.add_argument(
        "--models",
        type=split,
        default=BENCHMARK_MODELS,
        metavar="A,B",
        help=f"recipes (default: {','.join(BENCHMARK_MODELS)})",
    )
    parser.add_argument(
        "--protocols",
        type=split_protocols,
        metavar="NAME,NAME",
        help=f"evaluation protocols: {PROTOCOLS} (default: full; time where data.split = time)",
    )
    parser.add_argument(
        "--items",
        type=Path,
        metavar="FILE",
        help="item metadata as CSV, TSV or JSON, for recipes with side information",
    )
    parser.add_argument(
        "--seeds", type=split_seeds, default=(1,), metavar="1,2,3", help="seeds of trained models (default: 1)"
    )
    parser.add_argument("--name", metavar="NAME", help="name of the data in tables (default: the file name)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/benchmark"),
        metavar="DIR",
        help="folder of finished cells and tables (default: runs/benchmark)",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("runs/benchmark"),
        metavar="DIR",
        help="folder of the runs (default: runs/benchmark)",
    )


def add_attention(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `attention`."""
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run")
    add_log_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("attention.png"),
        metavar="PNG",
        help="file of the picture (default: attention.png)",
    )


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run, finished or not")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="the log that the run was trained on (default: what the run's last report kept of it)",
    )
    parser.add_argument(
        "--items", type=Path, metavar="FILE", help="item metadata with titles (default: what fit was given)"
    )
