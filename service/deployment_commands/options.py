"""The command line of `nextitem-serve models`."""

import argparse
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from model.contract.deployment.document import WHY_MAX, TrialTerms
from model.contract.deployment.versions import KEEP
from model.contract.manifest import is_plain_name
from service.settings import PREFIX, Settings

PROGRAM = "nextitem-serve models"
TIMEOUT_S = 600.0
"""How long `--wait` waits by default: as long as a worker may try a bundle before it uses it."""

_DAY_S = 86_400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY_S}
_TERMS: Mapping[str, tuple[type, str]] = {
    "path": (str, "canary: shadow, then canary, then promotion; shadow: promotion straight from shadow"),
    "alpha": (float, "chance of promoting a candidate that is not better, however often one looks"),
    "margin": (float, "share of the champion's NDCG@10 that a candidate may lose and still be promoted"),
    "return_margin": (float, "share of it that a candidate must be shown to lose to be returned"),
    "min_trials": (int, "paired events before the first verdict"),
    "min_answers": (int, "answers by the candidate before it is promoted from canary"),
    "min_hours": (float, "hours in canary before promotion"),
    "max_days": (float, "days after which an undecided candidate is returned"),
}
"""The fields of TrialTerms that `terms` sets; `hold` and `resume` set the other, auto."""

_CHANGES = {
    "use": "make VERSION the champion, which answers",
    "candidate": "put VERSION on trial, in place of any candidate",
    "share": "change the share of users that the candidate answers; 0 takes it back to shadow",
    "terms": "change when a candidate is promoted or returned without anybody's word",
    "promote": "make the candidate the champion",
    "return": "take the candidate off trial; the champion stays",
    "rollback": "go back to the champion before this one, end any trial, and hold the judge",
    "hold": "take verdicts from the judge until `resume`",
    "resume": "let the judge decide again",
}


def make_parser() -> argparse.ArgumentParser:
    """One sub-command for each thing to do. Options of all may stand before the sub-command or after it."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Show and change which model of a bundle folder answers. Running services follow within seconds.",
        epilog="Exit status: 0 done; 1 refused, or failed; 2 for wrong options; 3 if somebody else changed the "
        "deployment meanwhile.",
        allow_abbrev=False,
    )
    _add_common(parser, suppress=False)
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")

    def add(name: str, says: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.", allow_abbrev=False)
        _add_common(command, suppress=True)
        return command

    for name, says in {"list": "list the versions", "status": "show who answers, and what each worker serves"}.items():
        command = add(name, says)
        command.add_argument("--json", action="store_true", help="print JSON")
        if name == "status":
            _add_wait(command, "wait until every worker is on this deployment; 1 if one refused it or none reports")
    for name, says in _CHANGES.items():
        _add_change(add(name, says), name)
    prune = add("prune", "remove versions that nobody needs any more")
    prune.add_argument("--keep", type=_read_keep, default=KEEP, metavar="N", help=f"champions to keep ({KEEP})")
    prune.add_argument(
        "--older-than", type=_read_age, default=0.0, metavar="AGE", help="remove only what is older, such as 30d or 12h"
    )
    prune.add_argument("--force", action="store_true", help="prune though it cannot be seen what workers use")
    prune.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    prune.add_argument("--json", action="store_true", help="print JSON")
    journal = add("journal", "list all changes of the deployment, oldest first")
    journal.add_argument("--verify", action="store_true", help="check instead that no line was changed or removed")
    journal.add_argument("--last", type=_read_keep, default=None, metavar="N", help="only the newest N")
    journal.add_argument("--json", action="store_true", help="print the lines as they are")
    return parser


def read_terms(options: argparse.Namespace) -> dict[str, Any]:
    """The terms that were given, by name."""
    return {name: value for name in _TERMS if (value := getattr(options, name)) is not None}


def _add_change(command: argparse.ArgumentParser, name: str) -> None:
    if name in ("use", "candidate"):
        command.add_argument("version", type=_read_version, metavar="VERSION", help="its folder's name")
        command.add_argument(
            "--force", action="store_true", help="though it knows less than half of the champion's interactions"
        )
    if name == "candidate":
        command.add_argument(
            "--mode", choices=("shadow", "canary"), default=None, help="shadow: only scored; canary: it also answers"
        )
        command.add_argument("--share", type=_read_share, default=None, help="share of users in canary, 0 to 1 or 5%%")
    if name == "share":
        command.add_argument("share", type=_read_share, metavar="SHARE", help="0 to 1, or a percentage such as 5%%")
    if name == "terms":
        defaults = {field.name: field.default for field in fields(TrialTerms)}
        for term, (kind, says) in _TERMS.items():
            command.add_argument(
                f"--{term.replace('_', '-')}",
                type=kind,
                choices=("shadow", "canary") if term == "path" else None,
                default=None,
                metavar=None if term == "path" else term.rpartition("_")[2].upper(),
                help=f"{says} (default: {defaults[term]})",
            )
    command.add_argument("--why", type=_read_why, default="", help=f"for the journal, at most {WHY_MAX} characters")
    command.add_argument(
        "--if-generation", type=int, default=None, metavar="N", help="only if the deployment is of generation N"
    )
    command.add_argument("--dry-run", action="store_true", help="say what would stand, and change nothing")
    command.add_argument("--json", action="store_true", help="print the deployment as JSON")
    _add_wait(command, "wait until every worker that reports has followed; 1 if one refused")


def _add_wait(command: argparse.ArgumentParser, says: str) -> None:
    command.add_argument("--wait", action="store_true", help=says)
    command.add_argument(
        "--timeout-s", type=_read_seconds, default=TIMEOUT_S, metavar="S", help=f"longest wait ({TIMEOUT_S:g})"
    )


def _add_common(parser: argparse.ArgumentParser, *, suppress: bool) -> None:
    """The options of all commands: where the bundles are, and the store that workers report to."""
    for name, says in {
        "bundle": "folder of the bundles",
        "redis_url": "the store that the workers report to, as the service has it",
        "redis_password_file": "file with the store's password",
        "data_dir": "folder of the embedded store, without --redis-url",
    }.items():
        variable = f"{PREFIX}{name.upper()}"
        default = os.environ.get(variable) or (Settings.model_fields[name].default if name == "data_dir" else None)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=str if name == "redis_url" else Path,
            default=argparse.SUPPRESS if suppress else default and (str if name == "redis_url" else Path)(default),
            help=f"{says} (default: {variable})",
        )


def _read_version(text: str) -> str:
    if not is_plain_name(text):
        raise argparse.ArgumentTypeError("must be the name of a version's folder")
    return text


def _read_share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError("must be a number from 0 to 1, or a percentage such as 5%")
    return share


def _read_why(text: str) -> str:
    if len(text) > WHY_MAX or not text.isprintable():
        raise argparse.ArgumentTypeError(f"must be at most {WHY_MAX} printable characters")
    return text


def _read_keep(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError("must be a whole number of at least 0")
    return int(text)


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _DAY_S:
        raise argparse.ArgumentTypeError("must be a number of seconds, at most a day")
    return seconds


def _read_age(text: str) -> float:
    try:
        age_s = float(text[:-1]) * _UNITS[text[-1:]]
    except (ValueError, KeyError):
        age_s = math.nan
    if not 0 <= age_s < math.inf:
        raise argparse.ArgumentTypeError("must be a number with s, m, h or d, such as 30d")
    return age_s
