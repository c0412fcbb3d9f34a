"""Changes the catalogue for clients. What is acknowledged holds in the next answer of every worker."""

import asyncio
from collections.abc import Sequence
from typing import Final

from service.catalogue.live import LEASE_S
from service.errors import FieldError, Invalid, NotFound
from service.store.catalogue import MAX_ITEMS, CatalogueStore, Changed, ItemChange
from service.store.circuit_breaker import CircuitBreaker

MARGIN_S: Final = 0.05
"""By how much clocks may differ in half a second, and more."""

_FULL = f"{MAX_ITEMS:,} items differ from the bundle's: publish a bundle that has the changes, and put items back to it"


class CatalogueWriter:
    """Makes changes in the store."""

    def __init__(self, store: CatalogueStore, *, breaker: CircuitBreaker) -> None:
        """`breaker` guards changes."""
        self._store = store
        self._breaker = breaker

    async def change(self, changes: Sequence[ItemChange]) -> Changed:
        """Make all changes, of different items, or none.

        Raises NotFound, Invalid if there is no room, and StoreUnavailable if they may not have been made.
        """
        with self._breaker.guard():
            outcome = await self._store.change(changes)
        if outcome == "missing":
            raise NotFound("There is no such item, or it was deleted.")
        if outcome == "full":
            raise Invalid([FieldError("", "catalogue_full", _FULL)])
        if outcome.version:
            # Until then a worker may not have asked whether there is a catalogue at all.
            await asyncio.sleep(min(max(0.0, LEASE_S + MARGIN_S - outcome.age_ms / 1000), LEASE_S + MARGIN_S))
        return outcome
