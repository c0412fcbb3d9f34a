"""An erased user is nowhere on disk: not in the store's folder, not in the archive."""

import asyncio
import gzip
import time
from typing import Any

import pytest
from redis import Redis

from service.archive.archiver import Archiver
from service.archive.segments import Archive
from service.embedded.server import EmbeddedStore
from service.store.connection import connect
from service.store.event import make_event
from service.store.history import HistoryStore

CANARY = "canary-user"


@pytest.fixture
def find_canary(tmp_path):
    """The files that hold the user's id, unpacked where they are packed."""

    def find():
        contents = ((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
        return {
            path.name
            for path, content in contents
            if CANARY.encode() in (gzip.decompress(content) if path.suffix == ".gz" else content)
        }

    return find


def test_no_file_holds_an_erased_user(tmp_path, find_canary):
    """Archived before or not: after erasing, a run of the archiver and a rewrite of the file there are no hits."""
    with (
        EmbeddedStore(tmp_path / "data") as store,
        Redis.from_url(store.url) as raw,
        Archive(tmp_path / "a") as archive,
    ):

        async def fill(prefix):
            history = HistoryStore(connect(store.url))
            users = (CANARY, *(f"user-{other}" for other in range(100)))
            for number in range(30):
                fields: dict[str, Any] = {"item_id": "i", "event_type": "view", "now_ms": number}
                fields["event_id"] = f"{prefix}-{number}"
                await history.append([make_event(user_id=user, **fields) for user in users])
            return history

        async def archive_all():
            client = connect(store.url)
            await Archiver(client, archive).run()
            await client.aclose()

        async def scenario():
            await (await fill("before")).close()
            await archive_all()
            history = await fill("after")
            assert len(find_canary()) >= 2  # the append-only file, and a segment
            await history.erase(CANARY)
            await history.close()
            await archive_all()

        asyncio.run(scenario())
        raw.bgrewriteaof()
        deadline = time.monotonic() + 120
        while raw.info("persistence")["aof_rewrite_in_progress"] and time.monotonic() < deadline:
            time.sleep(0.05)
        # The file that was replaced is deleted a moment later.
        while find_canary() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert find_canary() == set()
