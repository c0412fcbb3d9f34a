"""The held-out events, sent one after the other as if they happened now, each preceded by the question they answer."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from demo.commands import DemoFailed
from demo.movielens import Rating

EVENTS_PER_REQUEST = 500
USERS_PER_REQUEST = 200
PATIENCE_MS = 2000
"""Every answer is verified: on a slow machine, too, it must come from the model."""


TRIES, AGAIN_S = 5, 1.0
"""How often the demo asks a service that is degraded or has no store, and how long it leaves it alone between."""


class Unavailable(DemoFailed):
    """The service answered 503: it may do so for a moment on a machine that is busy with something else."""


@dataclass
class Online:
    """Online HR@10 and NDCG@10: how often, and how high, the service ranked the item that came next."""

    users: int = 0
    hits: int = 0
    gain: float = 0.0

    def count(self, answer: Mapping[str, Any], item: str) -> None:
        """Add one answer, given before `item` was sent."""
        self.users += 1
        for recommended in answer["items"]:
            if recommended["item_id"] == item:
                self.hits += 1
                self.gain += 1 / math.log2(recommended["rank"] + 1)

    @property
    def metrics(self) -> dict[str, float]:
        """The means over users, by the trainer's names."""
        return {"HR@10": self.hits / self.users, "NDCG@10": self.gain / self.users}


def post(client: httpx.Client, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    """POST and return the answer. Raises DemoFailed for anything but 200."""
    try:
        response = client.post(path, json=body)
    except httpx.TransportError as error:
        raise DemoFailed(f"POST {path} to {client.base_url}: {str(error) or type(error).__name__}") from error
    if response.status_code != 200:
        kind = Unavailable if response.status_code == 503 else DemoFailed
        raise kind(f"POST {path} answered {response.status_code}: {response.text[:500]}")
    try:
        answer: dict[str, Any] = response.json()
    except ValueError as error:
        raise DemoFailed(f"POST {path} was not answered with JSON") from error
    return answer


def send_events(client: httpx.Client, events: Sequence[Mapping[str, object]]) -> dict[str, Any]:
    """POST events as a careful client does: after a 503 the same again, which counts each once. Raises DemoFailed."""
    for _ in range(TRIES - 1):
        try:
            return post(client, "/events", {"events": events})
        except Unavailable:
            time.sleep(AGAIN_S)
    return post(client, "/events", {"events": events})


def ask(client: httpx.Client, user: str, **fields: object) -> dict[str, Any]:
    """POST /recommend for ten items; a degraded answer says that the model or the store had no time: asked again.

    Raises DemoFailed.
    """
    body = {"user_id": user, "k": 10, "timeout_ms": PATIENCE_MS, **fields}
    for _ in range(TRIES - 1):
        answer = post(client, "/recommend", body)
        if answer["degraded"] is None:
            return answer
        time.sleep(AGAIN_S)
    return post(client, "/recommend", body)


def send_histories(
    client: httpx.Client, histories: Iterable[Sequence[Rating]], event_type: str = "rating"
) -> Iterator[int]:
    """Send the beginning of each user's log; yields how many events each request carried."""
    events = [
        {**rating.as_event(number), "type": event_type}
        for history in histories
        for number, rating in enumerate(history)
    ]
    for start in range(0, len(events), EVENTS_PER_REQUEST):
        batch = events[start : start + EVENTS_PER_REQUEST]
        answer = send_events(client, batch)
        if answer["accepted"] + answer["duplicates"] != len(batch) or answer["rejected"]:
            raise DemoFailed(f"POST /events did not take the whole log: {answer}")
        yield len(batch)


def count_stored(client: httpx.Client, user: str) -> int:
    """How many events of a user the service has taken, in this run or an earlier one."""
    history = ask(client, user, k=1)["history"]
    if history is None:
        raise DemoFailed("the service cannot read histories: its store does not answer")
    return int(history["version"])


def count_all_stored(client: httpx.Client, users: Sequence[str]) -> dict[str, int]:
    """How many events of each user the service has taken, asked in batches. Raises DemoFailed."""
    stored = {}
    for start in range(0, len(users), USERS_PER_REQUEST):
        asked = users[start : start + USERS_PER_REQUEST]
        questions = [{"user_id": user, "k": 1, "timeout_ms": PATIENCE_MS} for user in asked]
        answers = post(client, "/recommend/batch", {"requests": questions})["responses"]
        for user, answer in zip(asked, answers, strict=True):
            # A store that does not answer for a moment is asked again, alone and patiently.
            history = answer["history"]
            stored[user] = count_stored(client, user) if history is None else int(history["version"])
    return stored


def replay_user(client: httpx.Client, ratings: Sequence[Rating], online: Online) -> None:
    """Ask what comes next, send what did, ask again; every answer is verified. Raises DemoFailed."""
    *past, last = ratings
    before = ask(client, last.user)
    _verify(before, past)
    online.count(before, last.item)
    sent = send_events(client, [last.as_event(len(past))])
    if sent["accepted"] + sent["duplicates"] != 1:
        raise DemoFailed(f"the event of user {last.user} was not taken: {sent}")
    after = ask(client, last.user, min_history_version=sent["history"][last.user])
    _verify(after, ratings)


def _verify(answer: Mapping[str, Any], history: Sequence[Rating]) -> None:
    items = [recommended["item_id"] for recommended in answer["items"]]
    scores = [recommended["score"] for recommended in answer["items"]]
    user = history[0].user
    known = answer["history"]["length"] if answer["history"] else None
    for holds, claim in (
        (answer["source"] == "model" and answer["degraded"] is None, "comes from the model"),
        (answer["count"] == 10 == len(set(items)), "has ten different items"),
        (not set(items) & {rating.item for rating in history}, "has nothing that the user has seen"),
        (scores == sorted(scores, reverse=True), "is ranked by score"),
        ([recommended["rank"] for recommended in answer["items"]] == list(range(1, 11)), "counts its ranks"),
        (known == len(history), "knows the whole history, the last event included"),
    ):
        if not holds:
            raise DemoFailed(f"not true of the answer for user {user}: it {claim}\n{answer}")
