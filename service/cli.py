"""The command nextitem-serve: reads the settings, starts the store and the workers, and stops them in reverse order.

The subcommand `archive` only archives the log of a store, `judge` only scores its events, and `import` puts the events
of a log file into its histories; `keys`, `store` and `models` manage API keys, the embedded store, and which model
answers.
"""

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib.metadata import version
from types import FrameType
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qs, urlsplit

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from service.archive.schedule import ARCHIVE, archive_store, check_archiver, run_archiver
from service.auth.key_file import is_exposed, read_keys
from service.embedded.server import EmbeddedStore
from service.errors import KeysUnusable, StartFailed
from service.judge.schedule import JUDGE, check_judge, run_judge
from service.process.ports import bind
from service.settings import ARCHIVE_SETTINGS, IMPORT_SETTINGS, JUDGE_SETTINGS, PREFIX, Settings, describe_errors
from service.store.connection import connect, refuse_cluster
from service.system.open_files import limit_connections, raise_limit
from service.telemetry.logs import configure_logs

PROGRAM = "nextitem-serve"
IMPORT = "import"
ARCHIVE_FLAGS = {
    "once": "run once, then exit; a running archiver of the folder is asked to do it",
    "check": "check that the log was archived recently, then exit: status 0 if it was, 1 with a message if not",
    "take_over": "archive the store's log to this folder from now on, even if it went to another folder before",
}
JUDGE_FLAGS = {
    "once": "score what the log holds now, then exit",
    "check": "check that scores were written lately, then exit: status 0 if they were, 1 with a message if not",
    "dry_run": "write nothing, and say what would be counted and decided",
}
REPEATABLE = ("also_serve",)
"""Options that may be given again, for more of the same."""
BIND_PATIENCE_S = 5.0
"""How long to wait for a port that workers of a killed service still hold."""

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C. Exit status: 0; 1 if it cannot start or its store died, 2 for wrong options."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if (manage := _find_manager(words[:1])) is not None:
        return manage(words[1:])
    command = _find_command(words)
    given = vars(command.parser.parse_args(words[1:] if command.settings else words))
    flags = {name: given.pop(name) for name in command.flags}
    try:
        settings = Settings.for_command(command.settings, **given) if command.settings else Settings(**given)
    except ValidationError as error:
        return _refuse(describe_errors(error), status=2)
    configure_logs(settings.log_level)
    raise_limit()
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal that stopped it once more when it is done; this handler exits cleanly then.
        signal.signal(number, _leave)
    if "redis_url" in given and _has_password(given["redis_url"]):
        _log.warning(
            "The store's password is on the command line, where every user of this machine can read it: use "
            "--redis-password-file or %sREDIS_URL",
            PREFIX,
        )
    try:
        return command.run(settings, **flags)
    except StartFailed as error:
        return _refuse(str(error), status=1)


def _find_manager(word: Sequence[str]) -> Callable[[Sequence[str]], int] | None:
    """What runs a command that is not run on settings; None for the others, which import none of them."""
    match word:
        case ["keys"]:
            from service.auth.commands import manage_keys  # noqa: PLC0415 - see above

            return manage_keys
        case ["store"]:
            from service.backup.commands import manage_store  # noqa: PLC0415 - see above

            return manage_store
        case ["models"]:
            from service.deployment_commands.commands import manage_models  # noqa: PLC0415 - see above

            return manage_models
    return None


class _Command(NamedTuple):
    """A command that runs on settings: its flags, which are none of them, and the only settings that it has."""

    parser: argparse.ArgumentParser
    flags: Collection[str]
    settings: Sequence[str]
    run: Callable[..., int]


def _find_command(words: Sequence[str]) -> _Command:
    if words[:1] == [ARCHIVE]:
        return _Command(make_archive_parser(), ARCHIVE_FLAGS, ARCHIVE_SETTINGS, archive)
    if words[:1] == [JUDGE]:
        return _Command(make_judge_parser(), JUDGE_FLAGS, JUDGE_SETTINGS, judge)
    if words[:1] == [IMPORT]:
        from service.history_import.options import NAMES  # noqa: PLC0415 - brings NumPy, which the archiver needs not

        return _Command(make_import_parser(), NAMES, IMPORT_SETTINGS, import_log)
    return _Command(make_parser(), {}, (), serve)


def make_parser() -> argparse.ArgumentParser:
    """The command line, generated from the settings: one option per setting."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Serve next-item recommendations from a bundle.",
        epilog=f"An environment variable can set each option: {PREFIX} and its name in capitals, such as "
        f"{PREFIX}REDIS_URL. Other commands: `{PROGRAM} models` shows and changes which model answers, "
        f"`{PROGRAM} keys` manages API keys, `{PROGRAM} store` checks, backs up and restores the embedded store, "
        f"`{PROGRAM} {ARCHIVE}` archives the log of another store, `{PROGRAM} {JUDGE}` scores its events, `{PROGRAM} "
        f"{IMPORT}` puts the events of a log file into histories. Each has a --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('nextitem')}")
    _add_settings(parser, Settings.model_fields)
    return parser


def make_archive_parser() -> argparse.ArgumentParser:
    """The command line of `nextitem-serve archive`."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {ARCHIVE}",
        description="Archive the event log of a store to files, now and at regular intervals.",
        epilog=f"An environment variable can set each option that takes a value: {PREFIX} and its name in capitals.",
        allow_abbrev=False,
    )
    for name, meaning in ARCHIVE_FLAGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=meaning)
    _add_settings(parser, ARCHIVE_SETTINGS)
    return parser


def make_judge_parser() -> argparse.ArgumentParser:
    """The command line of `nextitem-serve judge`."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {JUDGE}",
        description="Score a store's events as they come: where would the models of a bundle folder have ranked them? "
        "The sums go to live.json in that folder. A service with an embedded store does so by itself.",
        epilog=f"An environment variable can set each option that takes a value: {PREFIX} and its name in capitals.",
        allow_abbrev=False,
    )
    for name, meaning in JUDGE_FLAGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=meaning)
    _add_settings(parser, JUDGE_SETTINGS)
    return parser


def make_import_parser() -> argparse.ArgumentParser:
    """The command line of `nextitem-serve import`."""
    from service.history_import.options import add_options  # noqa: PLC0415 - as above

    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {IMPORT}",
        description="Put the events of a log file into the histories of a store, the service running or not. It may "
        "be interrupted and run again: nothing is stored twice.",
        epilog=f"An environment variable can set each option from --redis-url on: {PREFIX} and its name in capitals. "
        "Exit status: 0 done; 1 the store failed; 2 the log or an option is no good; 130 interrupted.",
        allow_abbrev=False,
    )
    add_options(parser)
    _add_settings(parser, IMPORT_SETTINGS)
    return parser


def _add_settings(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    for name in names:
        field = Settings.model_fields[name]
        takes: dict[str, Any] = {"action": "store_true"} if field.annotation is bool else {"metavar": name.upper()}
        if name in REPEATABLE:
            takes["action"] = _Join
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            **takes,
            default=argparse.SUPPRESS,  # then the environment counts
            help=f"{field.description} ({describe_default(field)})".replace("%", "%%"),
        )


class _Join(argparse.Action):
    """Joins what an option is given each time by commas, as its environment variable has it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - the signature of an action
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,  # noqa: ARG002 - as above
    ) -> None:
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, ",".join(filter(None, (before, str(values)))))


def describe_default(field: FieldInfo) -> str:
    """A setting's default in words. A default that depends on other settings stands in the description."""
    if field.is_required():
        return "required"
    if field.default is None and "Default: " in (field.description or ""):
        return "default: computed"
    default = (",".join(field.default) or None) if isinstance(field.default, tuple) else field.default
    if isinstance(default, bool):
        return f"default: {'on' if default else 'off'}"
    return "default: none" if default is None else f"default: {default}"


def archive(settings: Settings, *, once: bool, check: bool, take_over: bool) -> int:
    """Archive until told to stop, or do what the flags say. Returns the exit status. Raises StartFailed."""
    return check_archiver(settings) if check else archive_store(settings, once=once, take_over=take_over)


def judge(settings: Settings, *, once: bool, check: bool, dry_run: bool) -> int:
    """Score events until told to stop, or do what the flags say. Returns the exit status. Raises StartFailed."""
    if check:
        return check_judge(settings)
    from service.judge.process import judge_store  # noqa: PLC0415 - the other commands need no ONNX Runtime

    return judge_store(settings, once=once, dry_run=dry_run)


def import_log(settings: Settings, **given: Any) -> int:  # noqa: ANN401 - as many types as options
    """Import a log file. Returns the exit status. Raises StartFailed."""
    from service.history_import.commands import import_log as run  # noqa: PLC0415 - the other commands need none of it

    return run(settings, **given)


def serve(settings: Settings) -> int:
    """Run the service until it is told to stop. Returns the exit status. Raises StartFailed."""
    from service.process.launcher import prepare_many, prepare_one  # noqa: PLC0415 - the archiver needs no web server

    limit_connections(settings.max_connections)  # fail here, once, and not in every worker
    if settings.redis_url is not None:
        # Fail here, once, and not in every worker.
        refuse_cluster(connect(settings.redis_url, password_file=settings.redis_password_file))
    if settings.keys_file is not None:
        try:
            read_keys(settings.keys_file)  # as above
            exposed = is_exposed(settings.keys_file)
        except KeysUnusable as error:
            raise StartFailed(f"the API key file cannot be used: {error}") from error
        if exposed:
            _log.warning(
                "Every user of this machine may read or write the API key file: run chmod o-rw %s", settings.keys_file
            )
    with contextlib.closing(bind(settings.host, settings.port, patience_s=BIND_PATIENCE_S)) as listener:
        run = prepare_one(settings) if settings.workers == 1 else prepare_many(settings)
        with _run_store(settings) as redis_url:
            try:
                return run(redis_url, listener)
            finally:
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)  # stopping the store must not be interrupted


@contextlib.contextmanager
def _run_store(settings: Settings) -> Iterator[str]:
    """The address of the store. Starts the embedded store if redis_url is not set; exits with 1 if it died."""
    if settings.redis_url is not None:
        with run_archiver(settings.redis_url, settings) if settings.archive_dir else contextlib.nullcontext():
            yield settings.redis_url
        return
    with EmbeddedStore(
        settings.data_dir, memory_limit_bytes=settings.store_memory_bytes, on_death=_stop_serving
    ) as store:
        try:
            with run_archiver(store.url, settings), run_judge(store.url, settings):
                yield store.url
        finally:
            if store.died:
                sys.exit(1)  # so that the service manager restarts the service


def _has_password(url: str) -> bool:
    parts = urlsplit(url)
    return parts.password is not None or "password" in parse_qs(parts.query)


def _stop_serving() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # a clean stop, as on request


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def _refuse(sentence: str, *, status: int) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)  # noqa: T201 - for the user at the terminal
    return status


if __name__ == "__main__":
    sys.exit(main())
