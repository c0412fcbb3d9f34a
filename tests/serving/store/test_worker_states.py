"""What workers report of themselves: written, read, and forgotten."""

import asyncio
import json

from redis.asyncio import Redis

from service.store.redis_keys import WORKERS
from service.store.worker_states import (
    EXPIRES_S,
    Refused,
    WorkerState,
    read_worker_states,
    remove_dead_workers,
    remove_worker_state,
    write_worker_state,
)

NOW_MS = 1_763_719_498_123
REFUSED = Refused("green", "golden", "2026-11-23T00:00:00.000Z", 16)
STATE = WorkerState("ab12:77", 17, "red", "blue", REFUSED, NOW_MS, "00aa", also_serve=("red", "old"))


def test_states_are_read_as_written_until_they_expire(store_url, raw):
    """The newest of each worker; what is old or no state at all is deleted."""

    async def scenario():
        async with Redis.from_url(store_url) as client:
            await write_worker_state(client, STATE)
            other = WorkerState("cd34:1", 16, "red", None, None, NOW_MS - 1)
            await write_worker_state(client, other)
            await client.hset(WORKERS, "ef56:9", b'{"generation": 1}')
            assert await read_worker_states(client, now_ms=NOW_MS) == [STATE, other]
            assert raw.hlen(WORKERS) == 2
            await remove_worker_state(client, other.worker)
            assert await read_worker_states(client, now_ms=NOW_MS + int(EXPIRES_S * 1000)) == [STATE]
            assert await read_worker_states(client, now_ms=NOW_MS + int(EXPIRES_S * 1000) + 1) == []
        assert raw.hlen(WORKERS) == 0

    asyncio.run(scenario())


def test_the_field_is_as_documented():
    """Names and forms that other programs read."""
    assert json.loads(STATE.to_bytes()) == {
        "folder_id": "00aa",
        "generation": 17,
        "champion": "red",
        "candidate": "blue",
        "also_serve": ["red", "old"],
        "breaker_open": False,
        "refused": {"version": "green", "code": "golden", "since": "2026-11-23T00:00:00.000Z", "generation": 16},
        "at_ms": NOW_MS,
    }
    assert STATE.instance == "ab12"


def test_the_dead_of_an_instance_are_forgotten(store_url, raw):
    """Not the living, nor those of another instance, whose processes may run elsewhere."""

    async def scenario():
        async with Redis.from_url(store_url) as client:
            for worker in ("ab12:77", "ab12:78", "cd34:77"):
                await write_worker_state(client, WorkerState(worker, 1, "red", None, None, NOW_MS))
            await remove_dead_workers(client, "ab12", runs=lambda pid: pid == 78)
            left = [state.worker for state in await read_worker_states(client, now_ms=NOW_MS)]
            assert left == ["ab12:78", "cd34:77"]
        raw.delete(WORKERS)

    asyncio.run(scenario())
