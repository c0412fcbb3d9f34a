"""The store that is asked: histories as the service keeps them and, beside them, as the textbook handler reads them."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness.cases import Case
from benchmarks.serving.material import KNOWN_ITEMS, draw_histories
from benchmarks.serving.systems.textbook import HISTORY_KEY
from service.embedded.server import EmbeddedStore
from service.store.connection import connect
from service.store.event import Event, make_event
from service.store.history import HistoryStore

_USERS_AT_ONCE = 50
_FIRST_MS = 1_700_000_000_000
_FILLED = "filled"


@contextlib.contextmanager
def open_store(case: Case, users: int, cache: Path, *, progress: Callable[[int, int], None]) -> Iterator[EmbeddedStore]:
    """The embedded store with every user's history. It is filled once; what was filled in part is filled anew.

    `progress` is told how many users are stored, and of how many.
    """
    folder = cache / f"store-{case.max_length}-{min(KNOWN_ITEMS, case.items)}-{users}"
    if not (folder / _FILLED).exists():
        shutil.rmtree(folder, ignore_errors=True)
        with EmbeddedStore(folder) as store:
            asyncio.run(_fill(store.url, case, users, progress))
        (folder / _FILLED).touch()
    with EmbeddedStore(folder) as store:
        yield store


async def _fill(url: str, case: Case, users: int, progress: Callable[[int, int], None]) -> None:
    """Append through the service's own port to the store; the textbook's lists are pushed."""
    client = connect(url)
    histories = [pair for kind in draw_histories(case, users).values() for pair in kind.items()]
    store = HistoryStore(client, write_timeout_s=60.0)
    for start in range(0, len(histories), _USERS_AT_ONCE):
        portion = histories[start : start + _USERS_AT_ONCE]
        await store.append([event for user_id, items in portion for event in _make_events(user_id, items)])
        pipeline = client.pipeline(transaction=False)
        for user_id, items in portion:
            pipeline.rpush(HISTORY_KEY.format(user_id), *items)
        await pipeline.execute()
        progress(start + len(portion), len(histories))
    await client.bgrewriteaof()  # quick to load the next time
    while (await client.info("persistence"))["aof_rewrite_in_progress"]:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.1)
    await store.close()


def _make_events(user_id: str, items: list[str]) -> list[Event]:
    times = range(_FIRST_MS, _FIRST_MS + len(items))
    return [
        make_event(
            user_id=user_id, item_id=item_id, event_type="view", now_ms=at_ms, timestamp_ms=at_ms, event_id=str(at_ms)
        )
        for item_id, at_ms in zip(items, times, strict=True)
    ]
