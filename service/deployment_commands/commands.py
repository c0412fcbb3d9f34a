"""`nextitem-serve models`: shows and changes which model of a bundle folder answers.

It reads and writes the folder alone, so that it works while no service, judge or store does. The store is asked only
for what the workers serve.
"""

import argparse
import getpass
import json
import os
import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from model.contract.bundle import MANIFEST
from model.contract.deployment import changes, journal
from model.contract.deployment.document import (
    Deployment,
    DeploymentConflict,
    DeploymentError,
    find_stray_current,
    read_deployment,
)
from model.contract.deployment.live_scores import LiveScoresMalformed, read_live_scores
from model.contract.deployment.live_sums import LiveScores
from model.contract.deployment.versions import list_versions
from model.contract.deployment.writer import change_deployment, prune
from model.contract.manifest import BundleError
from service.deployment_commands import tables
from service.deployment_commands.options import PROGRAM, make_parser, read_terms
from service.deployment_commands.workers import Sight, StoreAddress, see_workers, wait_for_workers
from service.settings import PREFIX, Settings

REFUSED, WRONG_CALL, CONFLICT = 1, 2, 3
"""Exit statuses. argparse exits with WRONG_CALL, too."""
INTERRUPTED = 130


class _WrongCall(Exception):
    """The options do not go together."""


_STATUSES = {
    _WrongCall: WRONG_CALL,
    DeploymentConflict: CONFLICT,
    DeploymentError: REFUSED,
    BundleError: REFUSED,
}
"""The first that fits counts."""


def manage_models(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status, with a message on stderr unless it is 0."""
    options = make_parser().parse_args(arguments)
    try:
        return _run(options)
    except tuple(_STATUSES) as error:
        return _refuse(str(error), next(status for kind, status in _STATUSES.items() if isinstance(error, kind)))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of the output is gone
        return REFUSED
    except OSError as error:
        return _refuse(f"{error.filename or options.bundle} cannot be used: {error.strerror}", REFUSED)
    except KeyboardInterrupt:
        return _refuse("interrupted", INTERRUPTED)


def _run(options: argparse.Namespace) -> int:
    if options.bundle is None:
        raise _WrongCall(f"--bundle is required: the folder of the bundles ({PREFIX}BUNDLE)")
    if (options.bundle / MANIFEST).is_file():
        raise _WrongCall(f"{options.bundle} is one version: give the folder that holds all of them")
    return _COMMANDS.get(options.what, _change)(options)


def _list(options: argparse.Namespace) -> int:
    deployment = _read_or_none(options.bundle)
    sight = see_workers(_address(options), () if deployment is None else (deployment.folder_id,))
    described = tables.describe_versions(list_versions(options.bundle), deployment, sight, _read_live(options.bundle))
    if options.json:
        _tell(json.dumps(described, indent=1))
        return 0
    _tell(tables.format_versions(described))
    _complain_unseen(sight)
    return 0


def _status(options: argparse.Namespace) -> int:
    deployment = read_deployment(options.bundle)
    outcome = None
    if options.wait:
        see = partial(see_workers, _address(options))
        outcome, sight = wait_for_workers(options.bundle, deployment, see, timeout_s=options.timeout_s)
        deployment = read_deployment(options.bundle)
    else:
        sight = see_workers(_address(options), (deployment.folder_id,))
    stray = find_stray_current(options.bundle, deployment)
    if options.json:
        _tell(json.dumps(tables.describe_status(deployment, sight, stray), indent=1))
    else:
        _tell(tables.format_status(deployment, sight))
    _complain_unseen(sight)
    if stray is not None:
        _say(
            f"`current` names {stray}, but deployment.json counts: to use it, run `{PROGRAM} use {stray}`; the next "
            "change of the deployment makes `current` agree"
        )
    if refusals := sight.find_refusals(deployment):
        return _refuse(f"{len(refusals)} of {len(sight.workers)} workers refused a version", REFUSED)
    if outcome in ("late", "nobody"):
        what = "some workers are not on this deployment" if outcome == "late" else "no worker reports"
        return _refuse(f"{what} after {options.timeout_s:g} s", REFUSED)
    return REFUSED if outcome == "unseen" else 0


def _change(options: argparse.Namespace) -> int:
    wish = changes.Wish(
        action=options.what,
        version=getattr(options, "version", None),
        mode=getattr(options, "mode", None),
        share=getattr(options, "share", None),
        terms=read_terms(options) if options.what == "terms" else {},
        why=options.why,
    )
    if wish.action == "terms" and not wish.terms:
        raise _WrongCall("terms needs at least one of its options: see --help")
    try:
        change = wish.to_change()
    except ValueError as error:
        raise _WrongCall(str(error)) from error
    before = _read_or_none(options.bundle)
    after = change_deployment(
        options.bundle,
        change,
        action=options.what,
        by=f"cli:{_name_user()}",
        why=options.why,
        if_generation=options.if_generation,
        force=getattr(options, "force", False),
        dry_run=options.dry_run,
    )
    if options.json:
        _tell(json.dumps(tables.describe_deployment(after), indent=1))
    else:
        _tell(f"{'Nothing was changed. It would be ' if options.dry_run else 'Now '}{tables.format_deployment(after)}")
    if options.what in ("use", "candidate"):
        _warn_of_length(options.bundle, options.version)
    return _wait(options, after, before) if options.wait and not options.dry_run else 0


def _wait(options: argparse.Namespace, deployment: Deployment, before: Deployment | None) -> int:
    """Wait for the workers after a change, which stands whatever comes of it."""
    see = partial(see_workers, _address(options))
    outcome, sight = wait_for_workers(
        options.bundle, deployment, see, timeout_s=options.timeout_s, before=before or deployment
    )
    count = len(sight.workers)
    match outcome:
        case "followed":
            _say(f"All {count} workers that report have followed.")
            return 0
        case "unseen":
            _say(f"The change stands. Nobody waited: the workers cannot be seen ({sight.fault}).")
            return 0
        case "nobody":
            _say("The change stands. Nobody waited: no worker reports to this store.")
            return 0
        case "refused":
            codes = sorted({worker.refused.code for worker in sight.workers if worker.refused})
            return _refuse(
                f"the change stands, but workers refused it ({', '.join(codes)}) and serve what they served: look at "
                f"`{PROGRAM} status`, and go back with `{PROGRAM} rollback`",
                REFUSED,
            )
    return _refuse(f"the change stands, but not all of {count} workers followed in {options.timeout_s:g} s", REFUSED)


def _prune(options: argparse.Namespace) -> int:
    sight = see_workers(_address(options), ())  # whoever uses a version of this name, it is spared
    if sight.fault is not None and not options.force:
        return _refuse(
            f"it cannot be seen which versions workers use ({sight.fault}): --force prunes all the same", REFUSED
        )
    in_use = {
        version
        for worker in sight.others
        for version in (worker.champion, worker.candidate, *worker.also_serve)
        if version
    }
    removed = prune(
        options.bundle,
        keep=options.keep,
        older_than_s=options.older_than,
        in_use=in_use,
        dry_run=options.dry_run,
    )
    if options.json:
        _tell(json.dumps(removed, indent=1))
        return 0
    for version in removed:
        _tell(f"{'Would remove' if options.dry_run else 'Removed'} {version}")
    if not removed:
        _tell("There is nothing to remove.")
    return 0


def _journal(options: argparse.Namespace) -> int:
    root: Path = options.bundle
    if options.verify:
        if fault := journal.verify_journal(root):
            return _refuse(f"the journal is not whole: {fault}", REFUSED)
        _tell("The journal is whole.")
        return 0
    entries = deque(journal.read_journal(root), maxlen=options.last)
    if options.json:
        for entry in entries:
            _tell(json.dumps(entry))
    else:
        _tell(tables.format_journal(entries))
    return 0


_COMMANDS = {"list": _list, "status": _status, "prune": _prune, "journal": _journal}


def _read_or_none(root: Path) -> Deployment | None:
    try:
        return read_deployment(root)
    except BundleError:
        return None  # nothing answers yet: its versions can be listed all the same


def _read_live(root: Path) -> LiveScores | None:
    try:
        return read_live_scores(root)
    except LiveScoresMalformed as error:
        _say(f"{PROGRAM}: {error}: live scores are not shown")
        return None


def _address(options: argparse.Namespace) -> StoreAddress:
    return StoreAddress(
        redis_url=options.redis_url, password_file=options.redis_password_file, data_dir=options.data_dir
    )


def _warn_of_length(root: Path, version: str) -> None:
    """Say where the service remembers less than the model can read. The service's own setting may be another."""
    remembered = os.environ.get(f"{PREFIX}HISTORY_LENGTH", "")
    length = int(remembered) if remembered.isdecimal() else Settings.model_fields["history_length"].default
    for one in list_versions(root):
        if one.name == version and one.manifest is not None and one.manifest.max_length > length:
            _say(
                f"{version} reads {one.manifest.max_length} items, but --history-length is {length}: it will see no "
                "more than that"
            )


def _name_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        return str(os.getuid())


def _complain_unseen(sight: Sight) -> None:
    if sight.fault is not None:
        _say(f"{PROGRAM}: the workers cannot be seen: {sight.fault}")


def _refuse(sentence: str, status: int) -> int:
    _say(f"{PROGRAM}: {sentence}")
    return status


def _tell(text: str) -> None:
    print(text)  # noqa: T201 - what was asked for


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201 - for people; stdout is for what was asked for
