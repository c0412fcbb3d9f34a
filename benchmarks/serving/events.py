"""POST /events beside its own Lua script driven directly: new events, one a request, on as many connections.

Both write to one store, which answers after fsync. The script is driven in the store's protocol over bare sockets, with
everything encoded beforehand: it is a ceiling.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from redis import Redis

from benchmarks.harness.closed_loop import Connect, Judge, Sample, connect_unix, drive_closed, judge_http
from benchmarks.serving.roster import OURS, System, encode_json
from benchmarks.serving.rounds import WARM_SHARE, Plan, Turn, rotate, take_turn
from benchmarks.serving.servers import Server, Setting, find_port, serve
from service.embedded.server import EmbeddedStore
from service.store.event import make_event
from service.store.history import DAY_MS
from service.store.redis_keys import KEY_COUNT, digest_user, name_keys

LUA = "append.lua alone"
USERS = 10_000
_MOST_A_SECOND = 25_000
"""So many events are encoded for each second; a loop that runs out of them ends early."""
_LIMITS = (1000, 1000, DAY_MS, 400 * DAY_MS)
"""ARGV 1 to 4 of append.lua, as the service sets them by default."""


def compare_events(
    roster: Sequence[System], folder: Path, plan: Plan, *, logs: Path, announce: Callable[[str], None]
) -> Iterator[Turn]:
    """Closed loops, in rounds, over a store of their own. Raises ServerFailed."""
    systems = [each for each in roster if each.kind == OURS]
    numbers = itertools.count()
    with EmbeddedStore(logs / "events") as store, contextlib.ExitStack() as stack:
        servers: dict[str, Server] = {}
        for system in systems:
            assert system.command is not None  # noqa: S101 - it is a server
            announce(f"/events: starts {system.name}")
            setting = Setting(folder, store.url, find_port(), plan.environments)
            log = logs / f"events, {system.name}.log"
            probe, judge = encode_event(next(numbers)), judge_http(b'"rejected":[]')  # asked again it is a duplicate
            servers[system.name] = stack.enter_context(
                serve(system.command, setting, log=log, probe=probe, judge=judge)
            )
        sources: dict[str, _Source] = {
            name: _Source(server.connect, encode_event, judge_http(b'"accepted":1')) for name, server in servers.items()
        }
        path = urlsplit(store.url).path
        sources[LUA] = _Source(connect_unix(path), partial(encode_call, load_script(path)), judge_call)
        processes = {name: server.process_id for name, server in servers.items()} | {"store": store.pid}
        for number in range(plan.rounds):
            for name in rotate(list(sources), number):
                load = sources[name].prepare(numbers, plan)
                yield {"load": "events", "round": number, **take_turn(load, name, processes, plan.seconds)}


@dataclass(frozen=True)
class _Source:
    """A target of events, and their encoding for it."""

    connect: Connect
    encode: Callable[[int], bytes]
    judge: Judge

    def prepare(self, numbers: Iterator[int], plan: Plan) -> Callable[[float], Sample]:
        """A closed loop over new events, all of them encoded here, before the turn."""
        count = int(_MOST_A_SECOND * (1 + WARM_SHARE) * plan.seconds)
        payloads = iter([self.encode(number) for number in itertools.islice(numbers, count)])
        return lambda seconds: drive_closed(
            self.connect, payloads, self.judge, connections=plan.connections, seconds=seconds
        )


def encode_event(number: int) -> bytes:
    """A request with one event, each number another one."""
    return encode_json("/events", {**_draw(number), "timestamp": int(time.time() * 1e3)})


def encode_call(sha: str, number: int) -> bytes:
    """The same as a call of append.lua, in the store's protocol."""
    drawn, now_ms = _draw(number), int(time.time() * 1e3)
    event = make_event(
        user_id=drawn["user_id"],
        item_id=drawn["item_id"],
        event_id=drawn["event_id"],
        event_type="view",
        now_ms=now_ms,
        timestamp_ms=now_ms,
    )
    words = [
        *("EVALSHA", sha, KEY_COUNT, *name_keys(event.user_id), *_LIMITS, digest_user(event.user_id)),
        *(event.event_id, event.digest, event.entry(), event.log_record()),
    ]
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)


def judge_call(received: bytes) -> bool | None:
    """Good is the reply about one event that was accepted: its user's version, and 0."""
    if not received.endswith(b"\r\n") or (received.startswith(b"*2") and received.count(b"\r\n") < 3):
        return None
    return received.startswith(b"*2\r\n:") and received.endswith(b"\r\n:0\r\n")


def _draw(number: int) -> dict[str, str]:
    return {"user_id": f"user-{number % USERS}", "item_id": f"{number % 3_416:07d}", "event_id": f"e{number}"}


def load_script(path: str) -> str:
    """Make append.lua known to the store at a socket: the name by which it is called."""
    text = files("service.store").joinpath("append.lua").read_text(encoding="utf-8")
    with Redis(unix_socket_path=path) as client:
        return str(client.script_load(text))
