"""Detects loss in the embedded store: missing files and missing events.

The log's streams count all events ever added; that number only grows, and trimming does not change it. So does the
catalogue's version, its number of changes. Their highest values are kept in a file next to the store's files (the
high-water marks). A start that finds a smaller number has lost the difference. The numbers are read after the fsync
that covers them, so they are never ahead of the disk.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import orjson
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from model.contract.atomic_files import write_whole
from service.store.catalogue_version import read_version_reply
from service.store.redis_keys import LOST_EVENTS, PARTITIONS, PREFIX, CatalogueKeys, tag_partition

HIGH_WATER: Final = "high-water.json"
COUNT_EVERY_S: Final = 10.0
"""How often events are counted. A loss of events newer than the last count goes undetected."""
COMPLAIN_EVERY_S: Final = 600.0
CALL_LIMIT_S: Final = 5.0
CLIENT_NAME: Final = "nextitem-guard"
"""Name of its connection in the server's CLIENT LIST."""

Counted = Literal["events", "catalogue"]
"""What is counted, as the file of the marks names it."""
_NAMES: Final[Mapping[Counted, str]] = {"events": "events", "catalogue": "changes of the catalogue"}
_RUNBOOK = "see docs/runbook.md, Lost events"
_log = logging.getLogger(__name__)

Sizes = Mapping[str, int]
"""The bytes of each file of the append-only folder."""


def measure(append_only_folder: Path) -> Sizes:
    """The sizes of a store's files, empty without any."""
    return {path.name: path.stat().st_size for path in append_only_folder.glob("*.aof")}


class StoreWatcher:
    """Watches the store that answers at `socket` and whose manifest is `manifest`. Use it as a context.

    `lock` is a file of the data folder that stays the same while the store runs.
    """

    def __init__(self, data_dir: Path, *, socket: Path, manifest: Path, lock: Path) -> None:
        self._data_dir = data_dir
        self._manifest = manifest
        self._lock = lock
        self._lock_is = _identify(lock)
        self._files_missed = False
        self._client = Redis(
            unix_socket_path=str(socket),
            client_name=CLIENT_NAME,
            socket_timeout=CALL_LIMIT_S,
            retry=Retry(NoBackoff(), 0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def report_start(self, before: Sizes | None) -> None:
        """Log the store's state after a start. `before`: the sizes before, None for a new store. Raises RedisError."""
        after = measure(self._manifest.parent)
        for name, size in (before or {}).items():
            if after.get(name, size) < size:
                _log.error(
                    "The file %s ended in the middle of a command and was cut at byte %d of %d. After a power cut this "
                    "is normal, and no acknowledged event is lost. Otherwise events may be missing: %s",
                    name,
                    after[name],
                    size,
                    _RUNBOOK,
                )
        if before is None:
            _log.info("The embedded store in %s is new and empty", self._data_dir)
        else:
            taken = count_events(self._client)
            _log.info("The embedded store in %s has stored %d events so far", self._data_dir, taken)
        try:
            self.count()
        except OSError as error:
            _log.error(
                "%s cannot be written: %s. Lost events cannot be detected", self._data_dir / HIGH_WATER, error.strerror
            )

    def watch(self, stop: threading.Event, *, every_s: float, also: Callable[[], None]) -> None:
        """Check the files and call `also` every `every_s` seconds until `stop` is set."""
        counted_s, complained_s = time.monotonic(), -COMPLAIN_EVERY_S
        while not stop.wait(every_s):
            try:
                also()
                if self._check_files() and time.monotonic() - counted_s >= COUNT_EVERY_S:
                    self.count()
                    counted_s = time.monotonic()
            except RedisError:
                pass  # the service reports a store that does not answer
            except Exception:  # noqa: BLE001 - the thread must go on watching
                if time.monotonic() - complained_s >= COMPLAIN_EVERY_S:
                    _log.exception("Watching the files of the embedded store failed")
                    complained_s = time.monotonic()

    def count(self) -> int:
        """Count events and changes of the catalogue, save the counts, and log a loss if one shrank.

        Returns the events. The store keeps the number of what was lost until an operator runs `nextitem-serve store
        acknowledge`. Raises RedisError, OSError.
        """
        found: dict[Counted, int] = {"events": count_events(self._client), "catalogue": count_changes(self._client)}
        known = {kind: read_high_water(self._data_dir, kind) for kind in found}
        lost = {kind: known[kind] - count for kind, count in found.items() if count < known[kind]}
        for kind, number in lost.items():
            _log.error(
                "The embedded store in %s lost %d of %d %s. It accepts new ones: %s",
                self._data_dir,
                number,
                known[kind],
                _NAMES[kind],
                _RUNBOOK,
            )
        if lost:
            try:
                self._client.incrby(LOST_EVENTS, sum(lost.values()))
            except ResponseError:  # the store is full: keep the old mark, so that the next count reports the loss again
                return found["events"]
        if found != known:
            write_whole(self._data_dir / HIGH_WATER, orjson.dumps(found), mode=0o600)
        return found["events"]

    def _check_files(self) -> bool:
        """Whether the files exist. While they do not, an unsafe store setting makes the service refuse events."""
        there = _identify(self._lock) == self._lock_is and self._manifest.exists()
        if not there:
            if not self._files_missed:
                _log.critical(
                    "The files of the embedded store in %s were moved or removed while it runs: refusing events. "
                    "Do not stop the service: only the store's memory still holds all events. %s",
                    self._data_dir,
                    "See docs/runbook.md, Files of a running store are gone",
                )
            self._files_missed = True
            self._client.config_set("appendfsync", "everysec")
        elif self._files_missed:
            self._client.config_set("appendfsync", "always")
            _log.warning("The files of the embedded store are back")
            self._files_missed = False
        return there


def count_events(client: Redis) -> int:
    """How many events a store has ever stored. Raises RedisError."""
    pipeline = client.pipeline(transaction=False)
    for partition in range(PARTITIONS):
        pipeline.xinfo_stream(f"{PREFIX}log:{tag_partition(partition)}")
    replies: list[Any] = pipeline.execute(raise_on_error=False)
    return sum(
        reply["entries-added"] for reply in replies if isinstance(reply, dict)
    )  # an empty partition has no stream


def count_changes(client: Redis) -> int:
    """How many changes the catalogue of a store has had. Raises RedisError."""
    try:
        return read_version_reply(client.get(CatalogueKeys().version))
    except (ValueError, TypeError, ResponseError):  # damaged, which the service reports
        return 0


def read_high_water(data_dir: Path, kind: Counted = "events") -> int:
    """A high-water mark: the count of events or changes when last checked, 0 if there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(orjson.loads((data_dir / HIGH_WATER).read_bytes())[kind])
    return 0


def _identify(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file, None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
