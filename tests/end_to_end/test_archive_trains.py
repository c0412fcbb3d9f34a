"""The loop is closed: what a service archived is what the trainer reads."""

import asyncio

from service.archive.archiver import Archiver
from service.archive.segments import Archive
from service.embedded.server import EmbeddedStore
from service.store.connection import connect
from service.store.event import make_event
from service.store.history import HistoryStore
from training.logs.reader import read_log
from training.recipe import DataRecipe


def test_trainer_reads_what_the_service_archived(tmp_path):
    """Users, items and order are those that were sent, over two runs of the archiver and events that came late."""
    sent = {f"u{user}": [f"i{(user + number) % 7}" for number in range(5)] for user in range(20)}

    async def serve(url):
        store, client = HistoryStore(connect(url)), connect(url)
        with Archive(tmp_path / "archive") as archive:
            for numbers in ((3, 0), (4, 1, 2, 1)):  # late and repeated ones among them
                for number in numbers:
                    for user, items in sent.items():
                        await store.append(
                            [
                                make_event(
                                    user_id=user,
                                    item_id=items[number],
                                    event_type="view",
                                    event_id=str(number),
                                    timestamp_ms=1_700_000_000_000 + number,
                                    now_ms=0,
                                )
                            ]
                        )
                await Archiver(client, archive).run()
        await store.close()
        await client.aclose()

    with EmbeddedStore(tmp_path / "data") as embedded:
        asyncio.run(serve(embedded.url))
    log = read_log(tmp_path / "archive", DataRecipe())
    found = dict(zip(log.user_ids, log.histories, strict=True))
    assert {user: log.vocabulary.decode(row.tolist()) for user, row in found.items()} == sent
