"""What the judge leaves out, what it survives, and that there is one."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import time

import pytest

from model.contract.bundle import NETWORK
from model.contract.deployment.live_scores import LIVE, read_live_scores
from model.contract.deployment.live_sums import Series
from service.errors import EngineUnavailable, StartFailed
from service.inference.model import LiveModel, load_model
from service.judge import judge as judging
from service.judge import models, process, schedule
from service.judge.token_bucket import TokenBucket
from service.judge.user_cap import HOUR_MS, UserCap
from service.settings import Settings
from service.store.event import make_event

CHAMPION, CANDIDATE = "20261121T101500-tiny", "20261122T101500-other"
PATIENCE_S = 60.0


def make_views(count, *, start=0, user="v", **fields):
    """Events of as many users."""
    return [
        make_event(
            **{
                "user_id": f"{user}{number}",
                "item_id": "i01",
                "event_type": "view",
                "event_id": f"e{number}",
                "now_ms": 1_763_719_498_000 + number,
                **fields,
            }
        )
        for number in range(start, start + count)
    ]


def judge_all(with_judge, events, **options):
    """Store events, and have them judged."""

    async def scenario(bench):
        await bench.store.append(events)
        await bench.judge.run_once()
        return bench.scores

    return with_judge(scenario, **options)


def count_skipped(scores):
    """The reasons that occurred."""
    return {reason: events for reason, events in scores.skipped.items() if events}


def test_user_has_six_trials_an_hour():
    """By the store's clock; others are not affected."""
    cap = UserCap()
    assert [cap.take("u", 1000) for _ in range(8)] == [True] * 6 + [False] * 2
    assert cap.take("other", 1000)
    assert cap.take("u", 1000 + HOUR_MS)


def test_cap_is_bounded(monkeypatch):
    """However many users there are."""
    monkeypatch.setattr("service.judge.user_cap.USERS_KEPT", 3)
    cap = UserCap(1)
    for number in range(50):
        cap.take(f"u{number}", 0)
    assert len(cap._trials) <= 3


def test_capped_events_and_other_types_are_no_trials(with_judge):
    """Each is counted with its reason."""
    events = [*make_views(9, user_id="robot"), *make_views(4, start=20, event_type="cart")]
    for number, event in enumerate(events):
        object.__setattr__(event, "item_id", f"i{1 + number % 12:02d}")
    scores = judge_all(with_judge, events, cap=UserCap(6), types=("view",))
    assert count_skipped(scores) == {"capped": 3, "type": 4}
    assert scores.totals[Series("champion", CHAMPION)].trials == 6


def test_bucket_holds_a_second():
    """So many trials a second, and no burst after a pause."""
    now = [0.0]
    bucket = TokenBucket(20.0, clock=lambda: now[0])
    taken = 0
    for _ in range(100):
        now[0] += 0.1
        tokens = int(bucket.peek())
        bucket.take(tokens)
        taken += tokens
    assert 20 * 10 - 1 <= taken <= 20 * 10 + 20
    now[0] += 1000
    assert bucket.peek() == 20
    assert TokenBucket(0.1, clock=lambda: now[0]).peek() == 1


def test_judge_skips_to_the_newest(with_judge, monkeypatch):
    """Once the oldest event waits for too long, all but the newest are skipped."""
    monkeypatch.setattr(judging, "BEHIND_MS", 300)
    monkeypatch.setattr(judging, "FRESH_MS", 100)

    async def scenario(bench):
        await bench.judge.step()  # loads the models
        await bench.store.append(make_views(40))
        await asyncio.sleep(0.5)
        await bench.store.append(make_views(5, start=40))
        await bench.judge.step()
        return bench.scores

    scores = with_judge(scenario, patient=False)
    assert count_skipped(scores) == {"behind": 40}
    assert scores.totals[Series("champion", CHAMPION)].trials == 5


def test_rate_limits_trials(with_judge):
    """What there is no time for waits."""

    async def scenario(bench):
        await bench.judge.step()
        await bench.store.append(make_views(200))
        await bench.judge.step()
        return bench.scores

    scores = with_judge(scenario, patient=False, rate=30.0)
    assert 30 <= scores.totals[Series("champion", CHAMPION)].trials < 150
    assert scores.events < 200


def test_what_left_the_log_unread_is_counted(with_judge, raw):
    """The archiver had it while the judge was away."""
    judge_all(with_judge, make_views(10))

    async def trim(bench):
        await bench.store.append(make_views(30, start=10))
        for key in raw.scan_iter("nextitem:log:*"):
            raw.xtrim(key, maxlen=0)
        await bench.store.append(make_views(5, start=40))
        await bench.judge.run_once()
        return bench.scores

    scores = with_judge(trim)
    assert count_skipped(scores) == {"gone": 30}
    assert scores.events == 45


def test_another_log_is_begun_anew(with_judge, raw):
    """An emptied store, for one."""
    judge_all(with_judge, make_views(30))
    raw.flushall()
    scores = judge_all(with_judge, make_views(7))
    assert count_skipped(scores) == {}
    assert scores.totals[Series("champion", CHAMPION)].trials == 37


def test_entries_of_others_are_counted_as_damaged(with_judge, raw):
    """In the log and in histories; they stop nothing."""
    [event] = make_views(1, user="w")

    async def scenario(bench):
        await bench.store.append([event, *make_views(3)])
        for key in [*raw.scan_iter("nextitem:log:*")][:1]:
            raw.xadd(key, {"e": "no JSON"})
            raw.xadd(key, {"e": json.dumps({"user_id": 1})})
        for key in raw.scan_iter("nextitem:history:*:w0"):
            raw.delete(key)
            raw.set(key, "text")
        await bench.judge.run_once()
        return bench.scores

    scores = with_judge(scenario)
    assert count_skipped(scores) == {"damaged": 3}
    assert scores.events == 6


@pytest.mark.usefixtures("candidate")
def test_corrupt_candidate_harms_nobody(with_judge, root):
    """The champion is judged, and it is said what is wrong with the other one."""
    network = root / CANDIDATE / NETWORK
    network.write_bytes(network.read_bytes()[:-1] + b"?")
    scores = judge_all(with_judge, make_views(20))
    assert scores.totals.keys() == {Series("champion", CHAMPION)}
    assert scores.totals[Series("champion", CHAMPION)].trials == 20
    assert "digest" in scores.refused[CANDIDATE]


@pytest.mark.usefixtures("candidate")
def test_failing_candidate_harms_nobody(with_judge, monkeypatch):
    """It fails once it is loaded: it is put aside, and tried again later."""
    rank = LiveModel.rank

    def fail(self, questions):
        if self.manifest.version == CANDIDATE and failing:
            raise EngineUnavailable("the graph's scores are not finite")
        return rank(self, questions)

    failing = False
    monkeypatch.setattr(LiveModel, "rank", fail)

    async def scenario(bench):
        nonlocal failing
        await bench.judge.step()
        failing = True
        await bench.store.append([*make_views(20), *make_views(20, start=20, user="v")])
        await bench.store.append(
            [make_event(user_id=f"v{n}", item_id="i07", event_type="view", now_ms=n) for n in range(20)]
        )
        await bench.judge.run_once()
        return bench.scores

    scores = with_judge(scenario)
    assert scores.totals[Series("champion", CHAMPION)].trials == 60
    assert scores.totals.get(Series("candidate", CANDIDATE)) is None or (
        scores.totals[Series("candidate", CANDIDATE)].trials < 60
    )
    assert "not finite" in scores.refused[CANDIDATE]


def test_version_that_ends_the_judge_is_put_aside(with_judge, candidate, monkeypatch):
    """After three times. The champion is judged then."""

    class Ended(BaseException):
        """The process is gone."""

    load = load_model

    def crash(source, **options):
        if source.name == candidate:
            raise Ended
        return load(source, **options)

    monkeypatch.setattr(models, "load_model", crash)
    for _ in range(models.CRASHES):
        with pytest.raises(Ended):
            judge_all(with_judge, [])
    scores = judge_all(with_judge, make_views(3))
    assert scores.totals[Series("champion", CHAMPION)].trials == 3
    assert "ended the judge 3 times" in scores.refused[candidate]


def test_malformed_file_is_begun_anew(root, caplog):
    """With a sentence."""
    (root / LIVE).write_text("{")
    assert process._read_scores(root).events == 0
    assert f"{LIVE} is not JSON. Counting begins anew" in caplog.text


def run_judge(*options):
    """`nextitem-serve judge` with options, until it ends."""
    command = [sys.executable, "-m", "service.cli", "judge", *map(str, options)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)


def test_single_run_and_second_judge(root, store_url):
    """`--once` judges what is there; a second judge of a folder ends with a sentence."""
    ended = run_judge("--bundle", root, "--redis-url", store_url, "--once")
    assert ended.returncode == 0, ended.stderr
    assert "Counted 0 events" in ended.stderr
    assert read_live_scores(root) is not None
    with process._hold(root), pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "LOCK_WAIT_S", 0.1)
        settings = Settings(bundle=root, redis_url=store_url)
        patch.setattr(os, "nice", lambda _: None)
        with pytest.raises(StartFailed, match="another judge scores the models of"):
            process.judge_store(settings, once=True, dry_run=False)


def test_scores_that_cannot_be_written_are_told_once(with_judge, root, caplog, monkeypatch):
    """However often it is tried, though the store is well; and again after they could be written meanwhile."""
    monkeypatch.setattr(judging, "WRITE_S", 0.0)

    async def scenario(bench):
        for _ in range(2):
            (root / LIVE).unlink(missing_ok=True)
            (root / LIVE).mkdir()
            for _ in range(3):
                await bench.judge._try_step()
            (root / LIVE).rmdir()
            await bench.judge._try_step()

    with_judge(scenario)
    said = [record for record in caplog.records if "The live scores cannot be written" in record.getMessage()]
    assert len(said) == 2
    assert read_live_scores(root) is not None


def test_obstacles(root):
    """A single bundle has no champion that could change."""
    assert schedule.find_obstacle(Settings(bundle=root)) is None
    assert "is a single bundle" in str(schedule.find_obstacle(Settings(bundle=root / CHAMPION)))


def test_judge_runs_beside_the_service(root, store_url, caplog):
    """As a child that yields to all others and ends with it."""
    settings = Settings(bundle=root, judge="auto")
    deadline_s = time.monotonic() + PATIENCE_S
    with schedule.run_judge(store_url, settings):
        while read_live_scores(root) is None:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    with caplog.at_level(logging.INFO), schedule.run_judge(store_url, Settings(bundle=root / CHAMPION, judge="auto")):
        pass
    assert "Live events are not scored" in caplog.text
