"""When and where the log is archived: beside the embedded store, or by `nextitem-serve archive` for another."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from service.archiver import Archiver
from service.connection import connect
from service.errors import StartFailed, StoreUnavailable
from service.segments import Archive
from service.settings import Settings

ARCHIVE = "archive"
"""The folder's name in the embedded store's data_dir."""

STOP_LIMIT_S = 10.0

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def archiving(url: str, settings: Settings) -> Iterator[None]:
    """Archive a store's log from a thread of this process, until the context ends. Raises StartFailed."""
    with Archive(settings.archive_dir or settings.data_dir / ARCHIVE) as archive:
        stop = threading.Event()
        thread = threading.Thread(target=archive_on, args=(url, settings, archive, stop), name="archiver", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(STOP_LIMIT_S)  # between two segments: whatever is half done is begun anew by the next start


def archive_on(url: str, settings: Settings, archive: Archive, stop: threading.Event) -> None:
    """Archive now and every `archive_minutes`. What fails is logged and tried again the next time."""
    while True:
        try:
            asyncio.run(archive_once(url, settings.redis_password_file, archive))
        except StoreUnavailable:
            _log.warning("The store did not answer: its log is archived the next time")
        except OSError as error:
            _log.error("The archive cannot be written: %s. The log stays in the store, which fills", error.strerror)
        except StartFailed as error:
            _log.error("The log is not archived, or not all erased: %s", error)
        except Exception:  # noqa: BLE001 - whatever it is: a thread that ended would archive nothing ever again
            _log.exception("The archiver failed; it tries again in %d minutes", settings.archive_minutes)
        if stop.wait(settings.archive_minutes * 60):
            return


async def archive_once(url: str, password_file: Path | None, archive: Archive) -> None:
    """One run. Raises StoreUnavailable, StartFailed for the archive of another store, OSError when the disk fails."""
    client = connect(url, password_file=password_file, max_connections=1)
    try:
        await Archiver(client, archive).run()
    finally:
        await client.aclose()


def archive_store(settings: Settings, *, once: bool) -> int:
    """`nextitem-serve archive`: until it is told to stop, or once. Raises StartFailed."""
    if settings.redis_url is None or settings.archive_dir is None:
        raise StartFailed("archive needs --redis-url and --archive-dir; the embedded store's log is archived by itself")
    with Archive(settings.archive_dir) as archive:
        if not once:
            archive_on(settings.redis_url, settings, archive, threading.Event())
        try:
            asyncio.run(archive_once(settings.redis_url, settings.redis_password_file, archive))
        except StoreUnavailable as error:
            raise StartFailed("the store does not answer or refuses: nothing was archived") from error
        except OSError as error:
            raise StartFailed(f"the archive cannot be written: {error.strerror}") from error
    return 0
