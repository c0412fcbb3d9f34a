"""The arguments of nextitem-train. This module imports nothing heavy, so that --help is instant."""

import argparse
import math
from collections.abc import Callable, Mapping
from pathlib import Path

from training.log_arguments import add_log_arguments
from training.old_names import announce_old_names
from training.recipe_models import BASELINES

PROTOCOL_NAMES = {
    "P1": "sampled-popular",
    "P1a": "sampled-popular-aprec",
    "P2": "full",
    "P5": "full-5core",
    "P6s": "full-keep-seen",
    "P7": "sampled-uniform",
    "time": "time",
}
"""The code of each protocol, which results hold, and the name that says what it is. Options accept both."""
_PROTOCOLS = ", ".join(name if name == code else f"{name} ({code})" for code, name in PROTOCOL_NAMES.items())
BENCHMARK_MODELS = ("pop", "markov", "rules", "item-knn", "session-knn", "bpr-mf", "fpmc", "gru4rec", "bert4rec-small")
SEEN_ITEMS = ("removed", "kept")
"""What a protocol does with items of the history, the target aside: no candidates, or candidates."""
REPEATED_TARGETS = ("kept", "missed", "dropped")
"""What it does with a target that its user has met before. kept: it is a candidate like others. missed: it is removed
as every seen item is, and so is in no list. dropped: it makes no question."""
SWEEP_PRESETS = (
    "bert4rec-width",
    "bert4rec-mask-share",
    "bert4rec-max-length",
    "bert4rec-ablations",
    "nova-fusion",
)
"""The grids of training/sweep/presets.py."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
AUTO, MINUTES = "auto", 10.0
"""What `fit` does without a recipe, and how long it then takes at most unless told otherwise."""
DATA_SET_NAMES = ("ml-100k", "ml-1m", "ml-20m")


def make_parser() -> argparse.ArgumentParser:
    """The parser. It stores the name of the command as `command`."""
    parser = argparse.ArgumentParser(
        prog="nextitem-train", description="Make next-item recommenders from interaction logs."
    )
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for name, (text, add_arguments) in COMMANDS.items():
        add_arguments(commands.add_parser(name, help=text))
    return parser


def _add_fit(parser: argparse.ArgumentParser) -> None:
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
        type=_read_minutes,
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


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="RUN|BASELINE", help=f"folder of a run, or one of {', '.join(BASELINES)}")
    add_log_arguments(parser)
    parser.add_argument(
        "--protocol",
        type=_read_protocol,
        metavar="NAME",
        help=f"evaluation protocol: {_PROTOCOLS} (default: full; time for a run with data.split = time)",
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
    _add_discount(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_describe(parser: argparse.ArgumentParser) -> None:
    add_log_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="RUN", help="folders of runs; with --data also names of baselines")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="evaluate on this log (default: compare the test results that each run stored)",
    )
    parser.add_argument(
        "--protocol", type=_read_protocol, metavar="NAME", help=f"with --data: evaluation protocol: {_PROTOCOLS}"
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


def _add_benchmark(parser: argparse.ArgumentParser) -> None:
    add_log_arguments(parser)
    parser.add_argument(
        "--models",
        type=_split,
        default=BENCHMARK_MODELS,
        metavar="A,B",
        help=f"recipes (default: {','.join(BENCHMARK_MODELS)})",
    )
    parser.add_argument(
        "--protocols",
        type=_split_protocols,
        metavar="NAME,NAME",
        help=f"evaluation protocols: {_PROTOCOLS} (default: full; time where data.split = time)",
    )
    parser.add_argument(
        "--items",
        type=Path,
        metavar="FILE",
        help="item metadata as CSV, TSV or JSON, for recipes with side information",
    )
    parser.add_argument(
        "--seeds", type=_split_seeds, default=(1,), metavar="1,2,3", help="seeds of trained models (default: 1)"
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


def _add_sweep(parser: argparse.ArgumentParser) -> None:
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
        type=_read_count,
        metavar="N",
        help="trials in all, those of earlier starts among them (default: 20; of a grid all)",
    )
    parser.add_argument(
        "--minutes",
        type=_read_minutes,
        metavar="M",
        help="time for all trials together, that of earlier starts included",
    )
    parser.add_argument(
        "--no-prune", action="store_false", dest="prune", help="run every trial to its end, however it begins"
    )
    parser.add_argument("--items", type=Path, metavar="FILE", help="item metadata, for recipes with side information")


def _add_attention(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run")
    add_log_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("attention.png"),
        metavar="PNG",
        help="file of the picture (default: attention.png)",
    )


def _add_report(parser: argparse.ArgumentParser) -> None:
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


def _add_publish(parser: argparse.ArgumentParser) -> None:
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
    _add_discount(parser)


def _add_retrain(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--budget", type=_read_seconds, metavar="SECONDS", help="time limit of both trainings together")
    parser.add_argument(
        "--every", type=_read_duration, metavar="TIME", help="run forever and retrain every so often: 24h, 30m, 7d"
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


def _add_recommend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run")
    add_log_arguments(parser)
    parser.add_argument("--users", required=True, metavar="u1,u2|all", help="comma-separated user ids, or all")
    parser.add_argument("-k", type=int, default=10, help="items per user (default: 10)")
    parser.add_argument(
        "--out", default="-", metavar="FILE", help="a .parquet or .csv file, or - to print a table (default: -)"
    )


def _add_fetch(parser: argparse.ArgumentParser) -> None:
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


def _split(text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part for part in text.split(",") if part))
    if not parts:
        raise argparse.ArgumentTypeError("the list is empty")
    return parts


def _split_protocols(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_read_protocol(part) for part in _split(text)))


def _read_protocol(text: str) -> str:
    """The code of a protocol by its code or name."""
    for code, name in PROTOCOL_NAMES.items():
        if text in (code, name):
            return code
    raise argparse.ArgumentTypeError(f"there is no protocol {text}: known are {_PROTOCOLS}")


def _split_seeds(text: str) -> tuple[int, ...]:
    parts = _split(text)
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError("seeds are whole numbers from 0")
    return tuple(map(int, parts))


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError("seconds are a number above 0")
    return seconds


def _read_minutes(text: str) -> float:
    try:
        return _read_seconds(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError("minutes are a number above 0") from error


def _read_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("a whole number from 1")
    return int(text)


def _read_duration(text: str) -> float:
    """Seconds of a duration such as 24h."""
    unit = _UNITS.get(text[-1:])
    if unit is None:
        raise argparse.ArgumentTypeError("a time is a number with s, m, h or d behind it, such as 24h")
    return unit * _read_seconds(text[:-1])


def _add_discount(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--popularity-discount",
        type=float,
        metavar="X",
        help="rank with this model.popularity_discount instead of the run's",
    )


COMMANDS: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "fit": ("train a model by a recipe, or what the log asks for", _add_fit),
    "evaluate": ("measure a run or a baseline on test events", _add_evaluate),
    "describe": ("print statistics of a log, as in Table 1 of the papers", _add_describe),
    "compare": ("compare runs, with paired differences and a plot", _add_compare),
    "benchmark": ("measure many models on one log: a table, a plot and a verdict", _add_benchmark),
    "sweep": ("try many values of a recipe's keys: a table, a plot and the best recipe", _add_sweep),
    "attention": ("draw the attention weights of a run, by layer and head", _add_attention),
    "report": ("write report.html: data, learning curves, verdict, lists of ten users", _add_report),
    "publish": ("export a finished run as a bundle and make it current", _add_publish),
    "retrain": ("train the champion's next version and put it on trial", _add_retrain),
    "recommend": ("list the best unseen items for users of a log", _add_recommend),
    "fetch": ("download a public data set", _add_fetch),
}
"""What `--help` says of each command, and what adds its arguments."""
