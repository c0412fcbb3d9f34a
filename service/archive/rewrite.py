"""Has the store rewrite its append-only file, which still holds the commands that wrote erased data."""

import logging
from typing import Final

from service.archive.store_log import StoreLog
from service.store.archive_status import REWRITE_ASKED, REWRITE_COVERS, REWRITE_WANTED
from service.store.redis_keys import PARTITIONS
from service.store.status import read_info

REWRITE_AFTER_MS: Final = 6 * 3_600_000
"""Minimum age of an erasure when the store is asked to rewrite its append-only file. With the longest interval between
two runs, 12 hours, erased data is gone within a day."""

_log = logging.getLogger(__name__)


async def note_erasures(log: StoreLog) -> None:
    """Record the oldest erasure whose data is still in the append-only file, before erasures are carried out."""
    known, covered = await log.ask("HMGET", log.state, REWRITE_WANTED, REWRITE_COVERS)
    if known is not None:
        return
    since = f"({int(covered or 0)}"
    found = await log.ask_all(
        [
            ("ZRANGE", log.key("erasing", partition), since, "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
            for partition in range(PARTITIONS)
        ],
        apart=True,
    )
    times_ms = [int(float(reply[1])) for reply in found if isinstance(reply, list) and reply]
    if times_ms:
        await log.write("HSET", log.state, REWRITE_WANTED, min(times_ms))


async def request_rewrite(log: StoreLog, now_ms: int) -> None:
    """Have the store rewrite its append-only file, which still holds the commands that wrote the erased data.

    One rewrite covers all erasures of some hours. A failed rewrite is requested again.
    """
    wanted, asked = await log.ask("HMGET", log.state, REWRITE_WANTED, REWRITE_ASKED)
    if wanted is None and asked is None:
        return
    info = read_info(await log.ask("INFO", "persistence"))
    if info.get("aof_enabled") == "0":
        await log.ask("HDEL", log.state, REWRITE_WANTED, REWRITE_ASKED)
        return
    if "1" in (info.get("aof_rewrite_in_progress"), info.get("aof_rewrite_scheduled")):
        return
    if asked is not None:
        failed = info.get("aof_last_bgrewrite_status") != "ok"
        if failed:
            _log.error("The store failed to rewrite its append-only file, which still holds erased users: see its log")
        if failed or info.get("aof_last_rewrite_time_sec") == "-1":  # or none has ended since the store was started
            wanted = asked
            await log.write("HSET", log.state, REWRITE_WANTED, int(wanted))
        await log.ask("HDEL", log.state, REWRITE_ASKED)
    if wanted is not None and now_ms - int(wanted) >= REWRITE_AFTER_MS:
        await log.write("HSET", log.state, REWRITE_ASKED, int(wanted), REWRITE_COVERS, now_ms)
        await log.ask("BGREWRITEAOF")
        await log.ask("HDEL", log.state, REWRITE_WANTED)
