"""A small steady stream of questions and events for a running service, so that its dashboards have something to show.

The users are those of MovieLens-100K. What they watched first is sent as their past; from then on they come at random,
ask what to watch next, and now and then tell what they did watch, which is the next rating of their log. A log that is
at its end begins anew. Strangers and visitors without a name ask, too.
"""

import argparse
import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx

from demo.bundle import LOG
from demo.commands import DemoFailed, console, end_in_order, read_key
from demo.movielens import Rating, read_ratings
from demo.replay import count_stored, post, send_histories

PAST = 0.8
"""The share of each log that is sent at the start."""
EVENTS = 0.1
"""The share of steps that send an event: one in ten keeps the store of a demo small for weeks."""
REPEATED, UNKNOWN = 0.1, 0.05
"""The shares of events that are sent twice, and that name an item which no model knows."""
STRANGERS, NAMELESS = 0.05, 0.05
"""The shares of questions by users without a history, and with a history in the question."""
REPORT_EVERY_S = 60.0
PAUSE_S = 2.0
"""How long to wait after a failure."""


def main() -> int:
    """Send until told to stop; 0 then."""
    parser = argparse.ArgumentParser(prog="python -m demo.traffic", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the service is (default %(default)s)")
    parser.add_argument("--data", type=Path, required=True, help="folder of MovieLens-100K, as `fetch` makes it")
    parser.add_argument("--rate", type=_read_rate, default=5.0, help="requests a second, at most 100 (default 5)")
    parser.add_argument("--key-file", type=Path, help="file with the key to the service, for recommend, events, admin")
    parser.add_argument("--alive-file", type=Path, help="file to touch at each request that goes well, for a probe")
    parser.add_argument("--ready-text", help="what to say once the service answers and has the past of all users")
    arguments = parser.parse_args()
    return end_in_order(functools.partial(run, arguments))


def run(arguments: argparse.Namespace) -> None:
    """Send the past, then step by step the present, `rate` steps a second, whatever fails."""
    url, rate = arguments.url, arguments.rate
    note_success = arguments.alive_file.touch if arguments.alive_file else lambda: None
    ratings = read_ratings(arguments.data / LOG)
    headers = {"Authorization": f"Bearer {read_key(arguments.key_file)}"} if arguments.key_file else {}
    with httpx.Client(base_url=url, timeout=10, headers=headers) as client:
        _send_past(client, ratings, note_success)
        console.print(f"{len(ratings)} users, {rate:g} requests a second to {url}, until stopped")
        if arguments.ready_text:
            console.print(arguments.ready_text, soft_wrap=True)
        traffic = Traffic(client, ratings)
        due_s = report_s = time.monotonic()
        while True:
            went_well = traffic.step()
            if went_well:
                note_success()
            now_s = time.monotonic()
            # Late: catch up on one second, not on an outage.
            due_s = max(due_s + 1 / rate, now_s - 1) if went_well else now_s + PAUSE_S
            if now_s >= report_s + REPORT_EVERY_S:
                report_s = now_s
                console.print(traffic.report())
            time.sleep(max(0.0, due_s - time.monotonic()))


@dataclass
class Traffic:
    """Sends questions and events of random users. How far each user has come in the log is asked of the service."""

    client: httpx.Client
    ratings: Mapping[str, Sequence[Rating]]
    random: Random = field(default_factory=lambda: Random(1))  # noqa: S311 - nothing to be kept secret
    tally: Counter[str] = field(default_factory=Counter)
    took_ms: list[float] = field(default_factory=list)

    def step(self) -> bool:
        """Send one request, two for a repeated event. Returns False when it failed."""
        user = self.random.choice(list(self.ratings))
        started = time.perf_counter()
        try:
            if self.random.random() < EVENTS:
                self._watch(user)
            else:
                self._ask(user)
        except DemoFailed as error:
            if not self.tally["failed"]:
                console.print(f"[red]A request failed, going on:[/] {error}", markup=True)
            self.tally["failed"] += 1
            return False
        self.took_ms.append((time.perf_counter() - started) * 1000)
        return True

    def report(self) -> str:
        """One line: what happened since the last report."""
        times = sorted(self.took_ms) or [0.0]
        median, high = (times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.tally.items()))
        self.tally.clear()
        self.took_ms.clear()
        return f"{counts or 'nothing'}; half within {median:.1f} ms, 99 % within {high:.1f} ms"

    def _ask(self, user: str) -> None:
        kind = self.random.random()
        body: dict[str, object] = {"k": 10}
        if kind < STRANGERS:
            body["user_id"] = f"stranger-{self.random.randrange(10**6)}"
        elif kind < STRANGERS + NAMELESS:
            body["items"] = [rating.item for rating in self.random.sample(self.ratings[user], 5)]
        else:
            body["user_id"] = user
        answer = post(self.client, "/recommend", body)
        self.tally[f"answers from {answer['source']}"] += 1
        if answer["degraded"]:
            self.tally["degraded"] += 1

    def _watch(self, user: str) -> None:
        number = count_stored(self.client, user)
        log = self.ratings[user]
        event = log[number % len(log)].as_event(number)
        event["timestamp"] = int(time.time() * 1000)
        if self.random.random() < UNKNOWN:
            event["item_id"] = "not-in-the-catalogue"
        times = 2 if self.random.random() < REPEATED else 1
        for _ in range(times):
            post(self.client, "/events", event)
        self.tally["events"] += times


def _send_past(
    client: httpx.Client, ratings: Mapping[str, Sequence[Rating]], note_success: Callable[[], None] = lambda: None
) -> None:
    missing, sent = [], 0
    for log in ratings.values():
        past = log[: max(1, int(len(log) * PAST))]
        if count_stored(client, past[0].user) < len(past):
            missing.append(past)
        note_success()
    for count in send_histories(client, missing):
        sent += count
        note_success()
    console.print(f"{sent} events of the past were sent" if sent else "The store holds the past of every user")


def _read_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 100:
        raise argparse.ArgumentTypeError("must be a number above 0 and at most 100")
    return rate


if __name__ == "__main__":
    sys.exit(main())
