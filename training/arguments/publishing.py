"""Commands that hand something out: publish, recommend, fetch."""

import argparse
from pathlib import Path

from training.arguments.log import add_log_arguments
from training.arguments.names import DATA_SET_NAMES
from training.arguments.shared import add_discount
from training.old_names import announce_old_names


def add_publish(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `publish`."""
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder that holds all bundles")
    parser.add_argument("--items", type=Path, metavar="FILE", help="item metadata as CSV, TSV or JSON, for the bundle")
    parser.add_argument(
        "--neighbours",
        type=Path,
        metavar="FILE",
        help="log for nearest-session answers (as session-knn) while the network is unavailable",
    )
    parser.add_argument(
        "--rules",
        type=Path,
        metavar="FILE",
        help="log for answers by sequential rules (as rules), to compare the network with",
    )
    parser.add_argument(
        "--similar",
        action="store_true",
        help="let the service find similar items and diversify lists: one more item table in the bundle and in memory",
    )
    parser.add_argument(
        "--item-scoring",
        "--scan",
        action=_ItemScoring,
        choices=("plain", "float32", "int8"),
        help="how the graph scores all items; every choice gives the same answers (default: by catalogue size; "
        "float32 is for GPUs; --scan is the deprecated name of this option)",
    )
    parser.add_argument(
        "--candidate",
        action="store_true",
        help="put it on trial beside the current bundle, in shadow: it is scored, and answers nobody yet",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="accept it though it knows less than half of the current bundle's interactions",
    )
    add_discount(parser)


def add_recommend(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `recommend`."""
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run")
    add_log_arguments(parser)
    parser.add_argument("--users", required=True, metavar="u1,u2|all", help="comma-separated user ids, or all")
    parser.add_argument("-k", type=int, default=10, help="items per user (default: 10)")
    parser.add_argument(
        "--out", default="-", metavar="FILE", help="a .parquet or .csv file, or - to print a table (default: -)"
    )


def add_fetch(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fetch`."""
    parser.add_argument("name", choices=DATA_SET_NAMES, help="data set to download")
    parser.add_argument("--out", type=Path, metavar="DIR", help="target folder (default: artifacts/NAME)")


class _ItemScoring(argparse.Action):
    """--item-scoring, and --scan with a note that it is deprecated."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - the signature of an action
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if option_string == "--scan":
            announce_old_names({"--scan": "--item-scoring"})
        setattr(namespace, self.dest, values)
