"""The second day with a service that others use: what it waits for, and that all is afterwards as it was before."""

import argparse
import fcntl
import json
import os
import shutil
import socket
import time
from pathlib import Path

import httpx
import pytest

from demo import stack
from demo.bundle import LOG
from demo.commands import DemoFailed, serve, train
from demo.day_two import SMALL, train_first
from demo.live import read_gauge
from demo.movielens import Rating, read_ratings
from demo.new_films import write_log
from demo.stack import FEW, StackService, name_users, run
from model.contract.bundle import MANIFEST, locate_bundle
from model.contract.deployment.changes import hold, return_candidate, set_candidate
from model.contract.deployment.document import read_deployment
from model.contract.deployment.journal import read_journal
from model.contract.deployment.writer import change_deployment

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "tests" / "serving" / "bundle"
DATA = ROOT / ".cache" / "ml-100k"
OTHER = "20261120T000000-00000001"


@pytest.fixture
def gauges():
    """What the service's metrics say."""
    return {"nextitem_deployment_generation": 99.0}


@pytest.fixture
def place(tmp_path, gauges):
    """A bundle folder with two versions, and a service that says what is in `gauges`."""
    bundles = shutil.copytree(BUNDLE, tmp_path / "bundles")
    champion = locate_bundle(bundles)
    manifest = json.loads((champion / MANIFEST).read_bytes()) | {"version": OTHER}
    (shutil.copytree(champion, bundles / OTHER) / MANIFEST).write_text(json.dumps(manifest))

    def answer(_):
        return httpx.Response(200, text="".join(f"{name} {value}\n" for name, value in gauges.items()))

    with httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer)) as client:
        yield StackService(client, tmp_path / "day", bundles, tmp_path / "archive", log="see the log")


def test_users_have_names_of_their_own():
    """The same ratings; no event of an earlier day has their ids."""
    ratings = {"7": [Rating("7", "a", 4.0, 1), Rating("7", "b", 5.0, 2)]}
    [(name, log)] = name_users(ratings).items()
    assert name.endswith("-7")
    assert name != "7"
    assert [(rating.user, rating.item) for rating in log] == [(name, "a"), (name, "b")]
    assert log[1].as_event(1)["event_id"] == f"ml-{name}-1"


def test_gauges_are_read():
    """One without labels, by its whole name; NaN where there is none."""
    page = "x_a 3.5\nx_ab 4.0\n# HELP x_a\n"
    assert read_gauge(page, "x_a") == 3.5
    assert read_gauge(page, "x_b") != read_gauge(page, "x_b")


def test_all_is_given_back(place):
    """Champion, terms and the judge's word, after a failure midway; the candidate is taken off trial."""
    before = read_deployment(place.bundles)

    def fail_midway():
        place.models("terms", "--path", "shadow", "--min-trials", "300", "--min-hours", "0")
        place.models("use", OTHER, "--wait")
        place.models("rollback")
        place.models("use", OTHER)
        place.models("candidate", before.champion)
        raise DemoFailed("midway")

    with pytest.raises(DemoFailed, match="midway"), place.lent():
        fail_midway()
    after = read_deployment(place.bundles)
    assert (after.champion, after.candidate, after.trial) == (before.champion, None, before.trial)
    lines = [line["action"] for line in read_journal(place.bundles)]
    assert lines[-4:] == ["return", "terms", "use", "resume"]
    with place.lent():
        pass
    assert read_deployment(place.bundles) == after


def test_a_stack_with_a_trial_or_a_held_judge_is_left_alone(place):
    """The day would end the one, and wait for the other in vain."""
    change_deployment(place.bundles, set_candidate(OTHER), action="candidate", by="test")
    with pytest.raises(DemoFailed, match=f"{OTHER} is on trial"), place.lent():
        raise AssertionError
    change_deployment(place.bundles, return_candidate(), action="return", by="test")
    change_deployment(place.bundles, hold(), action="hold", by="test")
    before = read_deployment(place.bundles)
    with pytest.raises(DemoFailed, match="the judge is held"), place.lent():
        raise AssertionError
    assert read_deployment(place.bundles) == before


def test_a_retraining_under_way_is_not_met(tmp_path):
    """Its lock is held for as long as the retrainer runs."""
    runs = tmp_path / "runs"
    runs.mkdir()
    arguments = argparse.Namespace(runs=runs, key_file=None, url="http://127.0.0.1:9")
    with (runs / "retrain.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DemoFailed, match="a retraining is under way"):
            run(arguments)


def test_workers_are_waited_for(place, gauges, monkeypatch):
    """Until the last one is on the generation; a service that does not follow is said."""
    monkeypatch.setattr(stack, "FOLLOW_S", 0.3)
    monkeypatch.setattr(stack, "_LOOK_S", 0.01)
    place.await_workers()
    for generation in (0.0, float("nan")):
        gauges["nextitem_deployment_generation"] = generation
        with pytest.raises(DemoFailed, match="not all workers followed"):
            place.models("use", OTHER if generation == 0 else locate_bundle(BUNDLE).name, "--wait")


def test_the_night_is_waited_for(place, gauges, monkeypatch):
    """Until the archiver has ended a run since, and has left no more than others can have sent meanwhile."""
    monkeypatch.setattr(stack, "_LOOK_S", 0.01)
    success, pending = "nextitem_archive_last_success_timestamp_seconds", "nextitem_archive_pending_events"
    place.archive_minutes = -5.0 + 0.5 / 60
    for archived, left in ((-1.0, 0), (60.0, FEW + 1), (float("nan"), float("nan"))):
        gauges |= {success: time.time() + archived, pending: left}
        with pytest.raises(DemoFailed, match="the night is not archived"):
            place.archive_now()
    gauges |= {success: time.time() + 60, pending: FEW}
    place.archive_now()


def test_the_judge_has_caught_up_when_it_wrote_since_and_nothing_waits(place, gauges):
    """What it wrote before is of no use, nor a figure that is written while events wait."""
    gauges |= {"nextitem_judge_timestamp_seconds": time.time() - 1, "nextitem_judge_lag_seconds": 0.0}
    assert not place.has_judged(5)
    gauges["nextitem_judge_timestamp_seconds"] = time.time() + 60
    assert place.has_judged(5)
    gauges["nextitem_judge_lag_seconds"] = 9.0
    assert not place.has_judged(5)


@pytest.mark.skipif(not os.environ.get("DAY_TWO"), reason="takes minutes: DAY_TWO=1")
@pytest.mark.timeout(1800)
def test_a_second_day_with_a_service_of_others(tmp_path, monkeypatch, capfd):
    """At the stack's pace: the story comes about, and afterwards the model from before answers."""
    train("fetch", "ml-100k", "--out", str(DATA))
    ratings = read_ratings(DATA / LOG)
    write_log(list(ratings.values()), tmp_path / "all.csv")
    bundles, runs, store = tmp_path / "bundles", tmp_path / "runs", tmp_path / "store"
    train_first(tmp_path / "all.csv", runs / "first", bundles, SMALL.first_s)
    before = read_deployment(bundles)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("COLUMNS", "120")
    with serve(bundles, store, port, tmp_path / "log", "--judge", "auto", "--archive-minutes", "1") as client:
        arguments = argparse.Namespace(
            runs=runs, bundles=bundles, archive=store / "archive", archive_minutes=1.0, data=DATA, key_file=None,
            url=str(client.base_url),
        )  # fmt: skip
        run(arguments)
        after = read_deployment(bundles)
        assert client.get("/model").json()["version"] == before.champion
    assert (after.champion, after.candidate, after.trial) == (before.champion, None, before.trial)
    actions = [line["action"] for line in read_journal(bundles)]
    assert actions == ["use", "use", "terms", "candidate", "promote", "rollback", "use", "terms", "use", "resume"]
    assert (runs / "day-two" / "day.svg").read_text().startswith("<svg")
    assert "live NDCG@10" in capfd.readouterr().out
