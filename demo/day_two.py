"""A model's second day: new films, quality falls, retrain, trial, promotion, quality rises. `make day-two` runs it.

A hundred of MovieLens-100K's most rated films are kept from the first model, as if they came out after it was trained.
"""

import argparse
import functools
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.bundle import LOG
from demo.commands import INTERRUPTED, DemoFailed, console, end_in_order, serve, train
from demo.live import Course, Live, look
from demo.movielens import Rating, read_ratings
from demo.new_films import Watching, choose_new, cut_past, write_log
from demo.phases import ENOUGH, Phases, show_evidence, show_journal, show_quality, show_table, show_traffic
from demo.picture import draw_day
from demo.places import ARCHIVE, OwnService, Place
from demo.replay import send_histories

DATA = Path(".cache/ml-100k")
FOLDER = Path("artifacts/day-two")
JUDGE_RATE = 120
"""Events a second at most to the judge, who scores six an hour of each user."""
NIGHT_SHARE = 0.35
"""The share of what everybody is yet to rate that comes in overnight."""
PAST_TYPE = "view"
MIN_TRIALS = 300
SETTLE_S, PROMOTION_S = 180.0, 10.0
"""How long the judge is waited for: it writes its figures every 5 s, and carries out its verdict soon after."""


@dataclass(frozen=True)
class Size:
    """Seconds of training, of the first model and the next, and of traffic: `trial_s` until the verdict at most."""

    first_s: int
    retrain_s: int
    before_s: float
    new_s: float
    trial_s: float
    after_s: float
    rate: float = 100.0
    trial_rate: float = 30.0
    """Events a second by day, and while there is a trial."""


WHOLE = Size(first_s=10, retrain_s=16, before_s=8.0, new_s=10.0, trial_s=30.0, after_s=8.0)
SMALL = Size(first_s=4, retrain_s=6, before_s=5.0, new_s=5.0, trial_s=30.0, after_s=5.0)

Ratings = Mapping[str, Sequence[Rating]]


@dataclass(frozen=True)
class Cast:
    """Who watches what: everybody's ratings, the films that are yet to come out, and what was rated before."""

    ratings: Ratings
    new: frozenset[str]
    past: list[list[Rating]]


def main() -> int:
    """Run it; 0 when everything came as it should."""
    parser = argparse.ArgumentParser(prog="python -m demo.day_two", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8000, help="where the service listens on 127.0.0.1 (default 8000)")
    parser.add_argument("--check", action="store_true", help="train and watch for less long; the same must come of it")
    arguments = parser.parse_args()
    day = functools.partial(run, arguments.port, SMALL if arguments.check else WHOLE)
    return end_in_order(day, interrupted=INTERRUPTED)


def run(port: int, size: Size) -> None:
    """All of it, from scratch, with a service of its own. Raises DemoFailed where a step does not do what it should."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    bundles, store, log = (FOLDER / name for name in ("bundles", "store", "service.log"))
    phases = Phases()
    phases.begin("A model that knows nothing of a hundred films")
    train("fetch", "ml-100k", "--out", str(DATA))
    cast = make_first(read_ratings(DATA / LOG), FOLDER, bundles, size.first_s)
    phases.begin("Everybody's past, and a day like any other")
    judge = ("--judge", "auto", "--judge-rate", str(JUDGE_RATE), "--judge-types", "rating")
    with serve(bundles, store, port, log, *judge) as client:
        play(OwnService(client, FOLDER, bundles, store / ARCHIVE, log=f"see {log}"), cast, size, phases)
    phases.end()


def make_first(ratings: Ratings, folder: Path, bundles: Path, seconds: int) -> Cast:
    """Train the model that answers at first, and publish it. Raises DemoFailed."""
    folder.mkdir(parents=True)
    new = choose_new(ratings)
    past = cut_past(ratings, new)
    write_log(past, folder / "past.csv")
    train_first(folder / "past.csv", folder / "first", bundles, seconds)
    return Cast(ratings, new, past)


def play(place: Place, cast: Cast, size: Size, phases: Phases) -> None:
    """The day, from everybody's past to the journal. Raises DemoFailed where a step does not do what it should."""
    send_past(place, cast.past)
    course, watching = Course(place.client), Watching.begin(place.client, cast.ratings, cast.past, cast.new)
    watching.sent = sum(map(len, cast.past))
    before = watch(place, watching, course, (size.rate, size.before_s), "before")
    phases.begin("A hundred films come out")
    watching.with_new = True
    drifted = watch(place, watching, course, (size.rate, size.new_s), "new films")
    if drifted.ndcg >= before.ndcg:
        raise DemoFailed("live NDCG@10 did not fall, although half of the events are of unknown films")
    phases.begin("Overnight the log grows, and a model is trained on it")
    grow_log(watching)
    place.archive_now()
    terms = ("--path", "shadow", "--min-trials", str(MIN_TRIALS), "--min-hours", "0")
    place.models("terms", *terms, "--why", "a day in two minutes")
    retrain(place, size.retrain_s)
    phases.begin("On trial: every event asks both models, and users see the old one")
    await_promotion(place, watching, course, (size.trial_rate, size.trial_s))
    after = watch(place, watching, course, (size.rate, size.after_s), "promoted")
    if after.ndcg <= drifted.ndcg:
        raise DemoFailed("live NDCG@10 did not rise after the promotion")
    phases.begin("Back, and forth again; the journal")
    go_back_and_forth(place)
    (place.folder / "day.json").write_text(json.dumps(course.describe(), indent=1) + "\n")
    (place.folder / "day.svg").write_text(draw_day(course.split(), ENOUGH))
    console.print()
    show_quality({"before": before, "new films": drifted, "promoted": after}, course)
    console.print(f"drawn: {place.folder / 'day.svg'}")


def train_first(log: Path, run: Path, bundles: Path, seconds: int) -> None:
    """The model that answers at first: the recipe's counts and rules learn from seconds of training, too."""
    budget = f"train.budget_seconds={seconds}"
    train("fit", "bert4rec-small", "--data", str(log), "--set", budget, "--out", str(run))
    train("publish", str(run), "--out", str(bundles))


def send_past(place: Place, past: Sequence[Sequence[Rating]]) -> None:
    """Send everybody's past, of a type that the own service's judge does not score: it counts each from here on."""
    deadline_s = time.monotonic() + SETTLE_S
    while not look(place.client).judged:
        if time.monotonic() > deadline_s:
            late = f"the judge has not begun after {SETTLE_S:.0f} s: it yields to all else on the machine"
            raise DemoFailed(f"{late}; {place.log}, or try again when the machine is idle")
        time.sleep(0.25)
    with show_traffic("the past", sum(map(len, past))) as advance:
        for sent in send_histories(place.client, past, PAST_TYPE):
            advance(sent)


def watch(place: Place, watching: Watching, course: Course, pace: tuple[float, float], phase: str) -> Live:
    """Traffic at a rate, for some seconds, and what the judge saw of the champion meanwhile. Raises DemoFailed."""
    rate, seconds = pace
    start = course.look(phase)
    with show_traffic(phase, seconds) as advance:
        for passed_s in watching.play(rate, seconds):
            if passed_s >= advance.done + 1:
                advance(passed_s - advance.done)
                course.look(phase)
    await_judge(place, watching.sent)
    live = course.look(phase).since(start)
    console.print(
        f"live NDCG@10 [bold]{live.ndcg:.4f}[/], {live.unknown_share:.0%} of {live.trials:,.0f} items unknown"
    )
    return live


def await_judge(place: Place, events: int) -> None:
    """Wait until the judge has dealt with so many events. Raises DemoFailed."""
    deadline_s = time.monotonic() + SETTLE_S
    while not place.has_judged(events):
        if time.monotonic() > deadline_s:
            late = f"the judge has not dealt with all of {events:,} events after {SETTLE_S:.0f} s"
            raise DemoFailed(f"{late}: {place.log}, or try again when the machine is idle")
        time.sleep(0.25)


def grow_log(watching: Watching) -> None:
    """A night of events in seconds, so that there is something to learn from."""
    before, before_new = watching.sent, watching.sent_new
    with show_traffic("overnight", watching.count_left() * NIGHT_SHARE) as advance:
        for sent in watching.send_at_once(NIGHT_SHARE):
            advance(sent)
    sent, of_new = watching.sent - before, watching.sent_new - before_new
    console.print(f"{sent:,} more events, {of_new / max(1, sent):.0%} of them of new films")


def retrain(place: Place, seconds: int) -> None:
    """Train the next model on the service's own log, and show what it was measured by. Raises DemoFailed."""
    train(
        "retrain", "--data", str(place.archive), "--bundle", str(place.bundles), "--runs", str(place.folder),
        "--budget", str(seconds),
        refused={3: "the new model is not shown to be as good as the old one: a busy machine may leave the training "
        "too little time. Try again when it is idle"},
    )  # fmt: skip
    [report] = place.folder.glob("retrain-*/retrain.json")
    show_table(json.loads(report.read_text())["offline"])


def await_promotion(place: Place, watching: Watching, course: Course, pace: tuple[float, float]) -> None:
    """Traffic until the champion is another one. Raises DemoFailed where it stays."""
    rate, seconds = pace
    champion, looked_s = place.name_champion(), 0.0
    course.look("overnight")  # what the judge saw of it
    with show_evidence() as show:
        for passed_s in watching.play(rate, seconds):
            if passed_s < looked_s + 0.5:
                continue
            looked_s = passed_s
            show(course.look("on trial").better)
            if place.name_champion() != champion:
                break
        deadline_s = time.monotonic() + PROMOTION_S
        while place.name_champion() == champion:
            if time.monotonic() > deadline_s:
                raise DemoFailed(f"no verdict within {seconds:.0f} s of traffic: try again when the machine is idle")
            time.sleep(0.25)
            show(course.look("on trial").better)
        verdict = json.loads(place.read_journal().splitlines()[-1])
        e_value = 10 ** verdict["evidence"]["log10_e"]["better"]
        show(e_value)
        course.look("on trial")
        course.close_trial(e_value)
    console.print(f"the judge: {verdict['why']}")
    console.print(f"{place.name_champion()} answers")


def go_back_and_forth(place: Place) -> None:
    """Roll back, use the promoted model again, and show the journal. Raises DemoFailed."""
    champion = place.name_champion()
    place.models("rollback", "--wait", "--why", "to show it")
    if place.name_champion() == champion:
        raise DemoFailed("the service does not answer with the first model after the rollback")
    place.models("use", champion, "--wait", "--why", "and back")
    if place.name_champion() != champion:
        raise DemoFailed("the service does not answer with the promoted model")
    show_journal(place.read_journal(), since=place.began)
    place.models("journal", "--verify")


if __name__ == "__main__":
    sys.exit(main())
