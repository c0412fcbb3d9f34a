"""`nextitem-serve store`: check, back up and restore the embedded store."""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from service.backup.backup import DIGESTS, Copied, back_up, restore, verify
from service.embedded.append_only import check, repair
from service.embedded.data_folder import APPEND_ONLY_FOLDER, find_socket, hold_data
from service.errors import StartFailed
from service.settings import PREFIX, Settings
from service.store.redis_keys import LOST_EVENTS

PROGRAM = "nextitem-serve store"
INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def manage_store(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit status: 1, with a message, when it fails or a check finds damage."""
    options = _make_parser().parse_args(arguments)
    data_dir: Path = options.data_dir.absolute()
    # Clean up after SIGTERM, a container's stop, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.what == "check":
            return _check(data_dir, fix=options.fix)
        if options.what == "backup":
            out = options.out.absolute()
            copied = back_up(data_dir, out, archive_dir=options.archive_dir, say=_say)
            _tell(f"Backed up {_describe(copied)} to {out}")
        elif options.what == "restore":
            copied = restore(options.source.absolute(), data_dir, say=_say)
            _tell(f"Restored {_describe(copied)} to {data_dir}; start the service with it")
        else:
            _acknowledge(data_dir)
    except StartFailed as error:
        _say(f"{PROGRAM}: {error}")
        return 1
    except OSError as error:
        _say(f"{PROGRAM}: {error.filename or data_dir} cannot be used: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        _say(f"{PROGRAM}: interrupted; no partial files are left behind")
        return INTERRUPTED
    return 0


def _check(data_dir: Path, *, fix: bool) -> int:
    is_backup = (data_dir / DIGESTS).exists()
    if is_backup:
        if fix:
            raise StartFailed(
                f"{data_dir} is a backup and is never changed: restore it, then repair the restored folder"
            )
        verify(data_dir)
    elif not (data_dir / APPEND_ONLY_FOLDER).is_dir():
        raise StartFailed(f"{data_dir} holds no store: give the --data-dir that the service uses")
    with contextlib.nullcontext() if is_backup else hold_data(data_dir):
        report = check(data_dir, _say)
        if report.manifest_fault is not None:
            _tell(f"{report.manifest_fault}: --fix writes a new one that names the files below")
        for finding in report.findings:
            _tell(finding.describe())
        if report.sound:
            _tell("The store is whole.")
            return 0
        if not fix:
            _say(f"Nothing was changed. `{PROGRAM} check --data-dir {data_dir} --fix` keeps a copy and repairs it.")
            return 1
        aside = repair(data_dir, report)
        again = check(data_dir)
    _tell(
        f"Repaired. {report.lost_events} events after the damage were cut off and saved. They and the original files "
        f"are in {aside}."
    )
    return 0 if again.sound else 1


def _acknowledge(data_dir: Path) -> None:
    """Reset the count of lost events in the running store."""
    try:
        socket = str(find_socket(data_dir))
        with Redis(unix_socket_path=socket, socket_timeout=5.0, retry=Retry(NoBackoff(), 0)) as client:
            lost = int(client.getdel(LOST_EVENTS) or 0)
    except RedisError as error:
        raise StartFailed(f"no service runs on {data_dir}: start the service, then run this again") from error
    _tell(f"Acknowledged that {lost} events were lost.")


def _describe(copied: Copied) -> str:
    return f"{copied.store_files} files of the store and {copied.archive_files} of its archive, {copied.size} bytes,"


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="what", required=True, metavar="check|backup|restore|acknowledge")
    looked_at = commands.add_parser("check", help="check the files of a stopped store or of a backup")
    looked_at.add_argument(
        "--fix", action="store_true", help="keep a copy of the files, then cut off what cannot be loaded"
    )
    saved = commands.add_parser("backup", help="back up the store and its archive; the service may be running")
    saved.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="new folder for the backup")
    given = os.environ.get(f"{PREFIX}ARCHIVE_DIR")
    saved.add_argument(
        "--archive-dir",
        type=Path,
        default=Path(given) if given else None,
        help=f"the service's --archive-dir, if it has one (default: {PREFIX}ARCHIVE_DIR)",
    )
    put_back = commands.add_parser("restore", help="restore a backup into an empty data folder")
    put_back.add_argument("--from", dest="source", type=Path, required=True, metavar="FOLDER", help="the backup")
    commands.add_parser("acknowledge", help="clear the warning about lost events of a running service")
    default = os.environ.get(f"{PREFIX}DATA_DIR") or Settings.model_fields["data_dir"].default
    for command in commands.choices.values():
        command.add_argument(
            "--data-dir",
            type=Path,
            default=Path(default),
            help=f"folder of the store (default: {PREFIX}DATA_DIR, or {default})",
        )
    return parser


def _tell(sentence: str) -> None:
    print(sentence)  # noqa: T201 - what was asked for


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201 - for people; stdout is for what was asked for
