"""What a service meets in a day, mixed: users old and new, events, odd requests, looks at its state."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.harness.open_loop import Shot, encode_post

USERS: Final = 500
ITEMS: Final = tuple(f"i{number:02d}" for number in range(1, 13))
"""Those of the tests' bundle."""


def mix(*, rate: float, seconds: float, seed: int = 0) -> Iterator[Shot]:
    """Shots at the random times of independent clients; whatever can be new in a request is new over and over."""
    draw = random.Random(seed)  # noqa: S311 - traffic, no secrets
    labels, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    at_s, number = 0.0, 0
    while (at_s := at_s + draw.expovariate(rate)) < seconds:
        number += 1
        [label] = draw.choices(labels, weights)
        _, make = KINDS[label]
        yield Shot(at_s, make(draw, number), label)


def _post(path: str, document: object) -> bytes:
    return encode_post(path, json.dumps(document).encode())


def _request(method: str, path: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _known(draw: random.Random) -> str:
    return f"user-{draw.randrange(USERS)}"


def _recommend_session(draw: random.Random, number: int) -> bytes:
    return _post("/recommend", {"items": draw.sample(ITEMS, 3), "exclude_item_ids": [f"gone-{number}"]})


def _send_events(draw: random.Random, number: int) -> bytes:
    """Two new ones, and one of them again."""
    event = {"user_id": _known(draw), "event_id": f"e{number}", "item_id": draw.choice(ITEMS)}
    return _post("/events", {"events": [event, {**event, "event_id": f"f{number}"}, event]})


def _send_odd_event(draw: random.Random, number: int) -> bytes:
    return _post("/events", {"user_id": _known(draw), "item_id": "i01", "type": f"type-{number}"})


KINDS: Final[dict[str, tuple[int, Callable[[random.Random, int], bytes]]]] = {
    "known user": (45, lambda draw, _: _post("/recommend", {"user_id": _known(draw), "k": draw.randrange(1, 12)})),
    "new user": (15, lambda _, number: _post("/recommend", {"user_id": f"new-{number}"})),
    "session": (10, _recommend_session),
    "events": (15, _send_events),
    "odd event": (2, _send_odd_event),
    "no JSON": (3, lambda _, number: encode_post("/recommend", b'{"user_id": "%d' % number)),
    "unknown path": (2, lambda _, number: _request("GET", f"/nothing/{number}")),
    "history": (4, lambda draw, _: _request("GET", f"/users/{_known(draw)}/history")),
    "erasure": (1, lambda draw, _: _request("DELETE", f"/users/{_known(draw)}")),
    "metrics": (1, lambda _draw, _number: _request("GET", "/metrics")),
    "readiness": (2, lambda _draw, _number: _request("GET", "/health/ready")),
}
"""Each kind of request: how many in a hundred, and what makes one."""
