"""The store's user for people: every command of the runbook, and no data."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from service.store.event import make_event
from service.store.records import Outcome

NOW_MS = 1_763_719_498_123


@pytest.fixture
def operator_client(log_in: Callable[[str], Redis]) -> Redis:
    """A plain client that is let in as who follows the runbook."""
    return log_in("operator")


def test_failed_snapshot_does_not_stop_events(in_store: Callable[..., Any], operator_client: Redis) -> None:
    """Snapshots are for backups: while one cannot be written, events are accepted as before."""
    obstacle = Path(operator_client.config_get("dir")["dir"] or "") / "dump.rdb"
    obstacle.unlink(missing_ok=True)
    obstacle.mkdir()  # nothing can be renamed to it
    try:
        operator_client.bgsave()
        for _ in range(500):
            info = operator_client.info("persistence")
            if not info["rdb_bgsave_in_progress"]:
                break
            time.sleep(0.02)
        assert info["rdb_last_bgsave_status"] == "err"
        event = make_event(
            user_id="u", item_id="i", event_type="view", event_id="e", timestamp_ms=NOW_MS, now_ms=NOW_MS
        )
        appended = in_store(lambda history: history.append([event]), prefix="nextitem:snapshot:")
        assert appended.outcomes == [Outcome.ACCEPTED]
    finally:
        obstacle.rmdir()


@pytest.mark.parametrize(
    "command",
    [
        "CONFIG GET appendfsync",
        "CONFIG SET appendfsync always",
        "CONFIG SET maxmemory 256mb",
        "INFO memory",
        "DBSIZE",
        "LASTSAVE",
        "CLIENT LIST",
        "SLOWLOG GET 10",
        "SLOWLOG LEN",
        "SLOWLOG RESET",
        "LATENCY LATEST",
        "LATENCY DOCTOR",
        "LATENCY HISTORY command",
        "MEMORY DOCTOR",
        "MEMORY STATS",
        "PING",
        "BGREWRITEAOF",
    ],
)
def test_operator_may(operator_client: Redis, command: str) -> None:
    """What the runbook asks of people works; BGSAVE has a test of its own."""
    assert operator_client.execute_command(*command.split()) is not None


@pytest.mark.parametrize(
    "command",
    [
        "GET nextitem:version:{00}:u",
        "LRANGE nextitem:history:{00}:u 0 -1",
        "XRANGE nextitem:log:{00} - +",
        "SCAN 0",
        "SET x 1",
        "DEL nextitem:log:{00}",
        "FLUSHALL",
        "EVAL return(1) 0",
        "ACL SETUSER operator allkeys",
        "ACL LOAD",
        "CONFIG REWRITE",
        "CONFIG RESETSTAT",
        "SHUTDOWN NOSAVE",
        "MONITOR",
        "REPLICAOF 127.0.0.1 6379",
        "CLIENT KILL ID 1",
        "CLIENT PAUSE 1",
    ],
)
def test_operator_may_not(operator_client: Redis, command: str) -> None:
    """People see settings and sizes, and no user's data; they delete nothing and make nobody else."""
    with pytest.raises(NoPermissionError):
        operator_client.execute_command(*command.split())


@pytest.mark.parametrize("setting", ["dir /tmp", "dbfilename x", "aclfile x", "enable-debug-command yes"])
def test_operator_cannot_write_elsewhere(operator_client: Redis, setting: str) -> None:
    """Settings by which files are written, or the server is opened, are closed while it runs."""
    with pytest.raises(ResponseError, match=r"protected config|immutable config"):
        operator_client.execute_command("CONFIG", "SET", *setting.split())
