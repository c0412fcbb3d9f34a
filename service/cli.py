"""nextitem-serve: reads the settings, opens what the service needs, and takes it down again in the opposite order.

`nextitem-serve archive` does nothing but archive the log of a store.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from service.archiving import archive_store, archiving
from service.connection import connect
from service.embedded import EmbeddedStore
from service.errors import KeysUnusable, StartFailed
from service.key_commands import manage_keys
from service.key_file import read_keys
from service.logs import configure_logs
from service.ports import bind
from service.server import prepare_many, prepare_one
from service.settings import PREFIX, Settings, describe_faults

PROGRAM = "nextitem-serve"
ARCHIVE = "archive"
ARCHIVE_SETTINGS = ("redis_url", "redis_password_file", "archive_dir", "archive_minutes", "log_level")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C: status 0. 1 when it cannot start or lost its store, 2 when called wrongly."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["keys"]:
        return manage_keys(words[1:])
    archives = words[:1] == [ARCHIVE]
    given = vars(make_archive_parser().parse_args(words[1:]) if archives else make_parser().parse_args(words))
    once = given.pop("once", False)
    if archives:
        given["bundle"] = Path()  # the archiver reads none
    try:
        settings = Settings(**given)
    except ValidationError as error:
        return _refuse(describe_faults(error), status=2)
    configure_logs(settings.log_level)
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal that stopped it again once it is done, which thus ends here in order.
        signal.signal(number, _leave)
    try:
        return archive_store(settings, once=once) if archives else serve(settings)
    except StartFailed as error:
        return _refuse(str(error), status=1)


def make_parser() -> argparse.ArgumentParser:
    """The command line, made of the settings: one option for each."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Serve next-item recommendations from a bundle.",
        epilog=f"Each option is an environment variable, too: {PREFIX} and its name in capitals, as {PREFIX}REDIS_URL. "
        f"`{PROGRAM} keys --help` tells how to make keys.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('nextitem')}")
    _add_settings(parser, Settings.model_fields)
    return parser


def make_archive_parser() -> argparse.ArgumentParser:
    """The command line of `nextitem-serve archive`."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {ARCHIVE}",
        description="Move the log of a store to files, now and every so often.",
        epilog=f"Each option but --once is an environment variable, too: {PREFIX} and its name in capitals.",
        allow_abbrev=False,
    )
    parser.add_argument("--once", action="store_true", help="archive what is there now and end")
    _add_settings(parser, ARCHIVE_SETTINGS)
    return parser


def _add_settings(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    for name in names:
        field = Settings.model_fields[name]
        takes: dict[str, Any] = {"action": "store_true"} if field.annotation is bool else {"metavar": name.upper()}
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            **takes,
            default=argparse.SUPPRESS,  # then the environment counts
            help=f"{field.description} ({describe_default(field)})".replace("%", "%%"),
        )


def describe_default(field: FieldInfo) -> str:
    """A setting's default in words."""
    if field.is_required():
        return "required"
    default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    if isinstance(default, bool):
        return f"default: {'on' if default else 'off'}"
    return "default: none" if default is None else f"default: {default}"


def serve(settings: Settings) -> int:
    """Run the service until it is told to stop. The exit status; raises StartFailed."""
    if settings.redis_url is not None:
        # Opens nothing, but refuses here what would fail in every worker.
        connect(settings.redis_url, password_file=settings.redis_password_file)
    if settings.keys_file is not None:
        try:
            read_keys(settings.keys_file)  # likewise
        except KeysUnusable as error:
            raise StartFailed(f"the keys cannot be used: {error}") from error
    with contextlib.closing(bind(settings.host, settings.port)) as listener:
        run = prepare_one(settings) if settings.workers == 1 else prepare_many(settings)
        with _run_store(settings) as redis_url:
            try:
                return run(redis_url, listener)
            finally:
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)  # what follows stops the store and must not be cut short


@contextlib.contextmanager
def _run_store(settings: Settings) -> Iterator[str]:
    """The address of the store, around the embedded one where no other is named. Exits with 1 if that one died."""
    if settings.redis_url is not None:
        with archiving(settings.redis_url, settings) if settings.archive_dir else contextlib.nullcontext():
            yield settings.redis_url
        return
    with EmbeddedStore(settings.data_dir, on_death=_stop_serving) as store:
        try:
            with archiving(store.url, settings):
                yield store.url
        finally:
            if store.died:
                sys.exit(1)  # so that a supervisor starts the service again


def _stop_serving() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # to end in order, as when told to


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def _refuse(sentence: str, *, status: int) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)  # noqa: T201 - for whoever called it, in a terminal most likely
    return status


if __name__ == "__main__":
    sys.exit(main())
