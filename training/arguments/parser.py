"""The parser: a sub-command for each command."""

import argparse
from collections.abc import Callable, Mapping

from training.arguments.evaluating import (
    add_attention,
    add_benchmark,
    add_compare,
    add_describe,
    add_evaluate,
    add_report,
)
from training.arguments.fitting import add_fit, add_retrain, add_sweep
from training.arguments.publishing import add_fetch, add_publish, add_recommend


def make_parser() -> argparse.ArgumentParser:
    """The parser. It stores the name of the command as `command`."""
    parser = argparse.ArgumentParser(
        prog="nextitem-train", description="Make next-item recommenders from interaction logs."
    )
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for name, (text, add_arguments) in COMMANDS.items():
        add_arguments(commands.add_parser(name, help=text))
    return parser


COMMANDS: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "fit": ("train a model by a recipe, or what the log asks for", add_fit),
    "evaluate": ("measure a run or a baseline on test events", add_evaluate),
    "describe": ("print statistics of a log, as in Table 1 of the papers", add_describe),
    "compare": ("compare runs, with paired differences and a plot", add_compare),
    "benchmark": ("measure many models on one log: a table, a plot and a verdict", add_benchmark),
    "sweep": ("try many values of a recipe's keys: a table, a plot and the best recipe", add_sweep),
    "attention": ("draw the attention weights of a run, by layer and head", add_attention),
    "report": ("write report.html: data, learning curves, verdict, lists of ten users", add_report),
    "publish": ("export a finished run as a bundle and make it current", add_publish),
    "retrain": ("train the champion's next version and put it on trial", add_retrain),
    "recommend": ("list the best unseen items for users of a log", add_recommend),
    "fetch": ("download a public data set", add_fetch),
}
"""What `--help` says of each command, and what adds its arguments."""
