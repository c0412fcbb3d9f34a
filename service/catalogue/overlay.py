"""What differs from the bundle's items, as of one version of the catalogue."""

import weakref
from collections.abc import Mapping
from typing import Protocol

from service.store.catalogue import DELETED, UNAVAILABLE, LoggedChange
from service.store.catalogue_version import read_entry_version


class Watcher(Protocol):
    """Who wants to know whose metadata change."""

    def note_changed(self, item_id: str) -> None:
        """The overlay has other metadata of an item from now on."""


class Overlay:
    """The records of all changed items (catalogue.lua has their form), about 150 bytes each besides their metadata."""

    def __init__(self, last_id: bytes = b"") -> None:
        """Take the id of the last change that it will hold, b"" before the first one."""
        self.last_id = last_id
        self.version = read_entry_version(last_id) if last_id else 0
        self.records: dict[str, bytes] = {}
        self.hidden: set[str] = set()
        """Items that may not be answered: not available, or deleted."""
        self.watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()
        """Those that `apply` tells."""

    def add(self, records: Mapping[str, bytes]) -> None:
        """Take records of this version or a later one."""
        self.records.update(records)
        self.hidden.update(item_id for item_id, record in records.items() if _hides(record))

    def apply(self, change: LoggedChange) -> None:
        """Make the next change, or one that it holds already."""
        if self.find_own(change.item_id) != change.record[1:]:
            for watcher in self.watchers:
                watcher.note_changed(change.item_id)
        if change.record:
            self.records[change.item_id] = change.record
        else:
            self.records.pop(change.item_id, None)
        if _hides(change.record):
            self.hidden.add(change.item_id)
        else:
            self.hidden.discard(change.item_id)
        self.last_id, self.version = change.entry_id, change.version

    def find_metadata(self, item_id: str, of_bundle: bytes | None) -> bytes | None:
        """An item's metadata as a JSON object, given the bundle's; None for an item that there is not.

        `of_bundle` is None for an item that the bundle does not have.
        """
        record = self.records.get(item_id)
        if record is None:
            return of_bundle
        return None if record[:1] == DELETED else record[1:] or of_bundle or b"{}"

    def find_own(self, item_id: str) -> bytes:
        """The metadata of an item that are not the bundle's, b"" where there are none."""
        return self.records.get(item_id, b"")[1:]

    def has_own(self, item_id: str) -> bool:
        """Whether an item's metadata are not the bundle's, or it is deleted."""
        record = self.records.get(item_id)
        return record is not None and (len(record) > 1 or record[:1] == DELETED)

    def is_deleted(self, item_id: str) -> bool:
        """Whether an item was deleted, and not made again."""
        return self.records.get(item_id, b"")[:1] == DELETED


def _hides(record: bytes) -> bool:
    return record[:1] in (UNAVAILABLE, DELETED)
