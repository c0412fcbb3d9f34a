"""Adds what this worker counts of a canary to the store every few seconds, where the judge reads it."""

import asyncio
import logging
from collections import OrderedDict
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.recommend.recommender import Recommender
from service.store.variant_counts import VariantTally, add_variant_counts

WRITE_EVERY_S: Final = 5.0
TALLIES: Final = 2
"""Generations that are written: that of now, and the one before, whose last answers are under way."""

_log: Final = logging.getLogger(__name__)


class TallyWriter:
    """Writes the tallies of one worker. What the store does not take is counted into the next write."""

    def __init__(self, client: Redis, *, recommender: Recommender) -> None:
        self._client = client
        self._recommender = recommender
        self._tallies: OrderedDict[tuple[str, int], VariantTally] = OrderedDict()
        """By folder id and generation."""
        self._failed = False

    async def run(self) -> None:
        """Write until cancelled, and once more then."""
        try:
            while True:
                await asyncio.sleep(WRITE_EVERY_S)
                await self.write()
        finally:
            await self.write()

    async def write(self) -> None:
        """Write what was counted since the last time."""
        variants = self._recommender.variants
        if variants.tally is not None:
            self._tallies[variants.folder_id, variants.generation] = variants.tally
        for (folder_id, generation), tally in self._tallies.items():
            await self._write(folder_id, generation, tally)
        while len(self._tallies) > TALLIES:
            self._tallies.popitem(last=False)

    async def _write(self, folder_id: str, generation: int, tally: VariantTally) -> None:
        counts = tally.take()
        if not counts:
            return
        try:
            async with asyncio.timeout(1.0):
                await add_variant_counts(self._client, folder_id, generation, counts)
        except (RedisError, OSError, TimeoutError) as error:
            tally.put_back(counts)
            if not self._failed:
                why = type(error).__name__
                _log.warning("The store does not take what is counted of the canary", extra={"fields": {"why": why}})
            self._failed = True
        else:
            self._failed = False
