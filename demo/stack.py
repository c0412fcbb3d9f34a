"""The second day in docker compose: with the stack's own service, store, archiver and judge, seen on its dashboard.

Its users have names of their own, so that nobody's history is touched. It takes its time: the stack's judge scores 20
events a second. Whatever comes of it, the model and the terms of trials from before stand again in the end.
"""

import argparse
import functools
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from demo.bundle import LOG
from demo.commands import INTERRUPTED, DemoFailed, ask, console, end_in_order, hold, manage, read_key
from demo.day_two import Ratings, Size, make_first, play
from demo.live import read_gauge
from demo.movielens import read_ratings
from demo.phases import Phases
from demo.places import Place

PACE = Size(
    first_s=30, retrain_s=60, before_s=60.0, new_s=75.0, trial_s=180.0, after_s=60.0, rate=15.0, trial_rate=15.0
)
"""Below what the judge scores."""
FEW = 500
"""Events of others that come while the archiver is at work: so many may be left to it."""
CAUGHT_UP_S = 2.0
FOLLOW_S = 60.0
TERMS = ("path", "min_trials", "min_hours")
"""What the day changes of them."""
_LOOK_S = 0.5


def main() -> int:
    """Play the day; 0 when everything came as it should."""
    parser = argparse.ArgumentParser(prog="python -m demo.stack", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the service is (default %(default)s)")
    parser.add_argument("--data", type=Path, required=True, help="folder of MovieLens-100K, as `fetch` makes it")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the training runs")
    parser.add_argument("--bundles", type=Path, required=True, help="folder of the bundles that the service follows")
    parser.add_argument("--archive", type=Path, required=True, help="folder that the log is archived to")
    parser.add_argument("--archive-minutes", type=float, default=60.0, help="how often that is (default 60)")
    parser.add_argument("--key-file", type=Path, help="file with the key to the service: recommend, events, metrics")
    return end_in_order(functools.partial(run, parser.parse_args()), interrupted=INTERRUPTED)


def run(arguments: argparse.Namespace, size: Size = PACE) -> None:
    """All of it. Raises DemoFailed where a step does not do what it should, and where somebody else is at work."""
    busy = "a retraining is under way, whose candidate this day would meet: leave the profile `retrain` out meanwhile"
    headers = {"Authorization": f"Bearer {read_key(arguments.key_file)}"} if arguments.key_file else {}
    with (
        hold(arguments.runs / "retrain.lock", busy),
        httpx.Client(
            base_url=arguments.url, timeout=10, headers=headers, transport=httpx.HTTPTransport(retries=3)
        ) as client,
    ):
        folder = arguments.runs / "day-two"
        logs = "see `docker compose logs judge`"
        place = StackService(client, folder, arguments.bundles, arguments.archive, logs)
        place.archive_minutes = arguments.archive_minutes
        with place.lent():
            phases = Phases()
            phases.begin("A model that knows nothing of a hundred films takes the place of the one that answers")
            shutil.rmtree(folder, ignore_errors=True)
            cast = make_first(name_users(read_ratings(arguments.data / LOG)), folder, arguments.bundles, size.first_s)
            place.await_workers()
            phases.begin("Everybody's past, and a day like any other")
            play(place, cast, size, phases)
            phases.end()


def name_users(ratings: Ratings) -> Ratings:
    """The same ratings of users whom nobody has seen before."""
    day = f"day-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    return {f"{day}-{user}": [replace(rating, user=f"{day}-{user}") for rating in log] for user, log in ratings.items()}


@dataclass
class StackService(Place):
    """The service of the stack, which others use, too: the store and the archiver are out of reach."""

    archive_minutes: float = 60.0
    _asked: tuple[int, float] = (-1, 0.0)
    """Of how many events it was last asked whether they are judged, and since when."""

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Leave everything as it was found. Raises DemoFailed while a candidate is on trial, or the judge is held."""
        before = self._read_deployment()
        if before["candidate"]:
            raise DemoFailed(f"{before['candidate']} is on trial: wait for its verdict, or return it")
        if not before["trial"]["auto"]:
            raise DemoFailed("the judge is held, so that it would promote nothing: `nextitem-serve models resume`")
        self.began = before["generation"]
        try:
            yield
        finally:
            self._give_back(before)

    def models(self, command: str, *options: str) -> None:
        manage("models", "--bundle", str(self.bundles), command, *(word for word in options if word != "--wait"))
        if "--wait" in options:
            self.await_workers()

    def await_workers(self) -> None:
        """Wait until every worker has followed. Raises DemoFailed."""
        generation = self._read_deployment()["generation"]
        until_s = time.monotonic() + FOLLOW_S
        while not self._read("nextitem_deployment_generation") >= generation:
            if time.monotonic() > until_s:
                raise DemoFailed(f"not all workers followed within {FOLLOW_S:.0f} s: see `docker compose logs service`")
            time.sleep(_LOOK_S)

    def archive_now(self) -> None:
        asked_s, until_s = time.time(), time.monotonic() + 60 * (self.archive_minutes + 5)
        console.print(f"The night ends with the archiver's next run. Minutes between runs: {self.archive_minutes:g}")
        while not (
            self._read("nextitem_archive_last_success_timestamp_seconds") > asked_s
            and self._read("nextitem_archive_pending_events") <= FEW
        ):
            if time.monotonic() > until_s:
                raise DemoFailed("the night is not archived: see `docker compose logs archiver`")
            time.sleep(_LOOK_S)

    def has_judged(self, events: int) -> bool:
        if self._asked[0] != events:
            self._asked = (events, time.time())
        return (
            self._read("nextitem_judge_timestamp_seconds") > self._asked[1] + CAUGHT_UP_S
            and self._read("nextitem_judge_lag_seconds") < CAUGHT_UP_S
        )

    def _give_back(self, before: dict[str, Any]) -> None:
        """The champion and the terms of before, by as few changes as it takes."""
        why = ("--why", "the day is over")
        now = self._read_deployment()
        if now["candidate"]:
            self.models("return", *why)
        changed = [term for term in TERMS if now["trial"][term] != before["trial"][term]]
        if changed:
            words = [word for term in changed for word in (f"--{term.replace('_', '-')}", str(before["trial"][term]))]
            self.models("terms", *words, *why)
        if now["champion"] != before["champion"]:
            self.models("use", before["champion"], *why)
        if before["trial"]["auto"] and not self._read_deployment()["trial"]["auto"]:
            self.models("resume", *why)

    def _read_deployment(self) -> dict[str, Any]:
        said = json.loads(ask("models", "--bundle", str(self.bundles), "status", "--json"))
        deployment: dict[str, Any] = said["deployment"]
        return deployment

    def _read(self, gauge: str) -> float:
        return read_gauge(self.client.get("/metrics").text, gauge)


if __name__ == "__main__":
    sys.exit(main())
