"""What each worker serves, in one hash of the store. `nextitem-serve models status` reads it.

A field for each worker, `<instance>:<pid>`, holding JSON:
{"folder_id", "generation", "champion", "candidate", "also_serve", "breaker_open",
 "refused": null | {"version", "code", "since", "generation"}, "at_ms"}.
`folder_id` is deployment.json's, "" for a worker of a single bundle: services of several bundle folders may share a
store. `since` is RFC 3339; the `generation` beside it is that of the deployment that named what is refused.
`breaker_open`: the candidate is loaded, but out of use for a minute, since it fails or is slow.
`also_serve`: the versions that the worker is to have for comparison, loaded or not.
A worker renews its field every REPORT_EVERY_S seconds; a field that is older than EXPIRES_S is nobody's.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from redis.asyncio import Redis

from service.store.redis_keys import WORKERS

REPORT_EVERY_S: Final = 20.0
EXPIRES_S: Final = 60.0
MAX_STATE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Refused:
    """The version that a worker should serve and cannot use: a code, and since when (RFC 3339)."""

    version: str
    code: str
    since: str
    generation: int = 0
    """Of the deployment that named the version when it was last refused."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What one worker serves. `candidate` is None unless it has one loaded."""

    worker: str
    """`<instance>:<pid>`."""
    generation: int
    champion: str
    candidate: str | None
    refused: Refused | None
    at_ms: int
    folder_id: str = ""
    breaker_open: bool = False
    also_serve: tuple[str, ...] = ()
    """The versions that it is to have for comparison, loaded or not."""

    @property
    def instance(self) -> str:
        """The service that the worker belongs to."""
        return self.worker.rpartition(":")[0]

    def to_bytes(self) -> bytes:
        """The field's content."""
        refused = self.refused
        return orjson.dumps(
            {
                "folder_id": self.folder_id,
                "generation": self.generation,
                "champion": self.champion,
                "candidate": self.candidate,
                "also_serve": self.also_serve,
                "breaker_open": self.breaker_open,
                "refused": None
                if refused is None
                else {
                    "version": refused.version,
                    "code": refused.code,
                    "since": refused.since,
                    "generation": refused.generation,
                },
                "at_ms": self.at_ms,
            }
        )


async def write_worker_state(client: Redis, state: WorkerState) -> None:
    """Store a worker's state. Raises RedisError or OSError."""
    await client.hset(WORKERS, state.worker, state.to_bytes())


async def remove_worker_state(client: Redis, worker: str) -> None:
    """Take a worker's state back: it ends. Raises RedisError or OSError."""
    await client.hdel(WORKERS, worker)


async def remove_dead_workers(client: Redis, instance: str, *, runs: Callable[[int], bool]) -> None:
    """Take back the states of an instance's workers that run no more, so that nobody waits for them.

    `runs` tells whether a process of this machine does. Raises RedisError or OSError.
    """
    fields = await client.hgetall(WORKERS)
    workers = [_text(name).rpartition(":") for name in fields]
    dead = [f"{owner}:{pid}" for owner, _, pid in workers if owner == instance and pid.isdigit() and not runs(int(pid))]
    if dead:
        await client.hdel(WORKERS, *dead)


async def read_worker_states(client: Redis, *, now_ms: int | None = None) -> list[WorkerState]:
    """The states of the workers that report, by worker. Deletes those that expired. Raises RedisError or OSError."""
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    fields = await client.hgetall(WORKERS)
    living, dead = [], []
    for name, content in fields.items():
        state = _decode(_text(name), content)
        if state is None or now_ms - state.at_ms > EXPIRES_S * 1000:
            dead.append(name)
        else:
            living.append(state)
    if dead:
        await client.hdel(WORKERS, *dead)
    return sorted(living, key=lambda state: state.worker)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _decode(worker: str, content: bytes | str) -> WorkerState | None:
    """A field's state; None for what no worker wrote."""
    if len(content) > MAX_STATE_BYTES:
        return None
    try:
        document: Any = orjson.loads(content)
        refused = document["refused"]
        return WorkerState(
            worker=worker,
            generation=int(document["generation"]),
            champion=str(document["champion"]),
            candidate=None if document["candidate"] is None else str(document["candidate"]),
            refused=None
            if refused is None
            else Refused(
                str(refused["version"]),
                str(refused["code"]),
                str(refused["since"]),
                int(refused.get("generation", 0)),
            ),
            at_ms=int(document["at_ms"]),
            folder_id=str(document.get("folder_id", "")),
            breaker_open=bool(document.get("breaker_open", False)),
            also_serve=tuple(map(str, document.get("also_serve", ()))),
        )
    except (ValueError, KeyError, TypeError):
        return None
