"""The store that an import goes to: one of its own address, the embedded one of a running service, or a stopped one."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

from service.embedded.data_folder import find_socket, is_in_use
from service.embedded.server import EmbeddedStore
from service.settings import Settings
from service.store.connection import connect, refuse_cluster
from service.store.history import DAY_MS, HistoryStore

ANSWER_S: Final = 30.0
"""Time limit of a round trip: no client waits for it."""


@contextlib.contextmanager
def run_store(settings: Settings) -> Iterator[str]:
    """The address of the store. Starts the embedded store where no service runs it. Raises StartFailed."""
    if settings.redis_url is not None:
        refuse_cluster(connect(settings.redis_url, password_file=settings.redis_password_file))
        yield settings.redis_url
    elif is_in_use(settings.data_dir):
        yield f"unix://{find_socket(settings.data_dir)}"
    else:
        with EmbeddedStore(settings.data_dir, memory_limit_bytes=settings.store_memory_bytes) as store:
            try:
                yield store.url
            finally:
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)  # stopping the store must not be interrupted


def open_histories(url: str, settings: Settings) -> HistoryStore:
    """The histories of the store, with the service's settings. Raises StartFailed."""
    return HistoryStore(
        connect(url, password_file=settings.redis_password_file, max_connections=4),
        history_length=settings.history_length,
        idle_ms=settings.history_days * DAY_MS,
        read_timeout_s=ANSWER_S,
        write_timeout_s=ANSWER_S,
        durability=settings.durability,
    )
