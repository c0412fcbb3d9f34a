"""Runs the archiver in a process of its own: as a child of the service, or as `nextitem-serve archive`.

Archiving compresses and waits for the disk. In the service's own process it would hold the interpreter lock and delay
answers.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from service.archive import asked
from service.archive.archiver import Archiver
from service.archive.segments import Archive, FolderBusy
from service.errors import ArchiveFailed, StartFailed
from service.settings import ARCHIVE_SETTINGS, Settings
from service.store.archive_status import LAST_SUCCESS, name_state
from service.store.connection import connect
from service.store.redis_keys import PREFIX
from service.system.child_process import ChildProcess

ARCHIVE = "archive"
"""The folder's name in the embedded store's data_dir, and the word that makes nextitem-serve an archiver."""

LOCK_WAIT_S: Final = 5.0
"""How long to wait for the folder while the archiver of a killed service still holds it."""

ANSWER_WAIT_S: Final = 600.0
"""How long `archive --once` waits for the running archiver, which may be in the middle of a long run."""

STALE_INTERVALS: Final = 3
"""Without a success for so many intervals, `archive --check` fails."""

_NICENESS: Final = 10
_POLL_S: Final = 0.1
_MISSING_SETTINGS: Final = "archive needs --redis-url and --archive-dir; the service itself archives an embedded store"

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def run_archiver(url: str, settings: Settings) -> Iterator[None]:
    """Run the archiver of a store in a child process while the context lasts. It never outlives this process.

    Raises StartFailed when the folder cannot be created.
    """
    folder = (settings.archive_dir or settings.data_dir / ARCHIVE).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartFailed(f"the archive cannot use {folder}: {error.strerror}") from error
    given = settings.model_copy(update={"redis_url": url, "archive_dir": folder})
    child = ChildProcess("Archiver", ARCHIVE, given.make_environment(ARCHIVE_SETTINGS))
    child.start()
    try:
        yield
    finally:
        child.stop()


def archive_store(settings: Settings, *, once: bool, take_over: bool) -> int:
    """`nextitem-serve archive`: run until told to stop, or once. Raises StartFailed."""
    if settings.archive_dir is None:
        raise StartFailed(_MISSING_SETTINGS)
    if once and not take_over:
        return _archive_now(settings, settings.archive_dir)
    url = _require_url(settings)
    group_access = settings.archive_group_access
    with Archive(settings.archive_dir, lock_wait_s=LOCK_WAIT_S, group_access=group_access) as archive:
        if once:
            _run_once(url, settings, archive, take_over=take_over)
        else:
            os.nice(_NICENESS)
            archive_forever(url, settings, archive, take_over=take_over)
    return 0


def _archive_now(settings: Settings, folder: Path) -> int:
    """Archive once, or have the archiver do it that has the folder. Raises StartFailed."""
    token: str | None = None
    until_s = time.monotonic() + ANSWER_WAIT_S
    while True:
        try:
            with Archive(folder, group_access=settings.archive_group_access) as archive:
                asked.withdraw(folder)  # whoever was asked is gone
                _run_once(_require_url(settings), settings, archive)
                return 0
        except FolderBusy as error:
            reply = None if token is None else asked.read_reply(folder, token)
            if reply is not None and reply.failure is not None:
                raise StartFailed(f"archiver run failed: {reply.failure}") from error
            if reply is not None:
                return 0
            if time.monotonic() > until_s:
                raise StartFailed(f"{error}. That process was asked for a run and did not answer in time") from error
        try:
            token = token or asked.ask(folder)
        except OSError as error:
            raise StartFailed(f"the archiver of {folder} cannot be asked for a run: {error.strerror}") from error
        time.sleep(_POLL_S)


def _run_once(url: str, settings: Settings, archive: Archive, *, take_over: bool = False) -> None:
    try:
        asyncio.run(archive_once(url, settings.redis_password_file, archive, take_over=take_over))
    except ArchiveFailed as error:
        raise StartFailed(f"archiver run failed: {error}") from error


def archive_forever(url: str, settings: Settings, archive: Archive, *, take_over: bool = False) -> None:
    """Archive now, every `archive_minutes`, and when asked. A failed run is logged and retried at the next interval."""
    token = asked.take(archive.folder)
    while True:
        failure: str | None = None
        try:
            asyncio.run(archive_once(url, settings.redis_password_file, archive, take_over=take_over))
        except (ArchiveFailed, StartFailed) as error:
            failure = str(error)
            _log.error("Archiver run failed: %s", error)
        except Exception:  # noqa: BLE001 - the archiver must outlive any failed run
            failure = "see the archiver's log"
            _log.exception("Archiver run failed unexpectedly; trying again in %d minutes", settings.archive_minutes)
        if token is not None:
            with contextlib.suppress(OSError):  # a full disk: whoever asked waits in vain
                asked.answer(archive.folder, token, failure)
        token = asked.wait_for_request(archive.folder, settings.archive_minutes * 60)


async def archive_once(url: str, password_file: Path | None, archive: Archive, *, take_over: bool = False) -> None:
    """One run. Raises ArchiveFailed, StartFailed without the password."""
    client = connect(url, password_file=password_file, max_connections=1)
    try:
        await Archiver(client, archive, take_over=take_over).run()
    finally:
        await client.aclose()


def check_archiver(settings: Settings) -> int:
    """`nextitem-serve archive --check`: 0 if any process archived recently. Raises StartFailed."""
    url = _require_url(settings)
    try:
        last_s = asyncio.run(_read_last_success(url, settings.redis_password_file))
    except (RedisError, OSError) as error:
        raise StartFailed("the store does not answer, so the time of the last archiver run is unknown") from error
    if last_s == 0:
        raise StartFailed("no archiver run has succeeded for this store")
    minutes = (time.time() - last_s) / 60
    if minutes > STALE_INTERVALS * settings.archive_minutes:
        raise StartFailed(f"the last successful archiver run was {minutes:.0f} minutes ago")
    return 0


async def _read_last_success(url: str, password_file: Path | None) -> float:
    client = connect(url, password_file=password_file, max_connections=1)
    try:
        found = await client.execute_command("HGET", name_state(PREFIX), LAST_SUCCESS)  # type: ignore[no-untyped-call]
        return float(found or 0)
    finally:
        await client.aclose()


def _require_url(settings: Settings) -> str:
    if settings.redis_url is None:
        raise StartFailed(_MISSING_SETTINGS)
    return settings.redis_url
