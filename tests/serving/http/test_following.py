"""A worker follows the deployment of its bundle folder: it swaps, refuses, retries, and says so."""

import asyncio
import gc
import json
import logging
import os
import signal
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from benchmarks.harness.faulty_engine import inject_faults
from benchmarks.reliability.swaps.traffic import copy_version, make_root
from model.contract.atomic_files import write_whole
from model.contract.bundle import point_current
from model.contract.deployment.changes import set_candidate, use
from model.contract.deployment.document import DEPLOYMENT, read_deployment
from model.contract.deployment.journal import last_entry
from model.contract.deployment.live_sums import LiveScores
from model.contract.deployment.writer import change_deployment
from service.deployment import watcher
from service.deployment.choices import open_version
from service.deployment.instance import Instance
from service.deployment.probe import Verdict, describe_files
from service.deployment.refusals import RETRY_S, Retries
from service.errors import ModelRefused
from service.judge.champion_guard import ChampionGuard
from service.judge.worker_counts import count_failing
from service.ranking.recommendation_id import RecommendationIds
from service.recommend.first_runs import LEAST_RUNS
from service.store.connection import connect
from service.store.worker_states import read_worker_states


@pytest.fixture
def root(tmp_path):
    """A folder with the versions red and blue, of which red is the current one."""
    return make_root(tmp_path / "bundles")


@pytest.fixture
def quick(monkeypatch):
    """Bundles are loaded without being tried in a process first: the tests of the probe do that."""
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, ""))


def deploy(root, change):
    """Change the deployment as a command does."""
    return change_deployment(root, change, action="use", by="cli:test", force=True)


def wait_for(client, holds, *, seconds=60):
    """Let the loop turn until something holds of GET /model; the model."""
    deadline = time.monotonic() + seconds
    while not holds(model := client.get("/model").json()):
        assert time.monotonic() < deadline, model
        client.run(asyncio.sleep(0.02))
    return model


@pytest.mark.usefixtures("quick")
def test_another_champion_is_swapped_in_and_the_old_one_freed(make_client, root):
    """Answers, /model, metrics and examples are the new one's; nothing of the old one is in memory."""
    client = make_client(bundle=root, follow_s=0.05)
    wait_for(client, lambda model: model["follows"])
    assert client.recommend(items=["red-i01"])["model"] == {"name": "tiny", "version": "red", "variant": "champion"}
    gc.collect()
    gc.freeze()  # as the service does once it has started
    old = client.service.recommender.variants.champion
    left = [weakref.ref(part) for part in (old, old.model, old.model.engine, old.batcher, old.runner)]
    del old
    deploy(root, use("blue", why="test"))
    model = wait_for(client, lambda model: model["version"] == "blue" and model["generation"] == 1)
    assert (model["variant"], model["candidate"], model["refused"]) == ("champion", None, None)
    answer = client.recommend(items=["blue-i01", "red-i01"])
    assert (answer["model"]["version"], answer["unknown_item_ids"]) == ("blue", ["red-i01"])
    assert all(item["item_id"].startswith("blue-") for item in answer["items"])
    deadline = time.monotonic() + 30
    while any(part() is not None for part in left):
        assert time.monotonic() < deadline, [part() for part in left]
        client.run(asyncio.sleep(0.02))
    counts = client.counts()
    assert counts['nextitem_model_reloads_total{result="swapped"}'] == 1
    assert (counts["nextitem_models_loaded"], counts["nextitem_deployment_generation"]) == (1, 1)
    assert counts["nextitem_model_reload_seconds_count"] == counts["nextitem_model_swap_pause_seconds_count"] == 1
    assert "blue-" in json.dumps(client.get("/openapi.json").json()["paths"]["/recommend"]["post"]["requestBody"])
    assert client.get("/items/red-i01").status_code == 404


@pytest.mark.usefixtures("quick")
def test_current_alone_is_followed(make_client, root):
    """A folder without deployment.json: writing `current` swaps."""
    client = make_client(bundle=root, follow_s=0.05)
    point_current(root, "blue")
    assert wait_for(client, lambda model: model["version"] == "blue")["generation"] == 0


@pytest.mark.usefixtures("quick")
def test_a_request_that_waits_for_its_history_outlives_its_variant(make_client, root, user):
    """It took a variant that retired meanwhile: the one of now answers, and not without the engine."""
    client = make_client(bundle=root, follow_s=0.05)

    async def ask():
        waiting = asyncio.create_task(
            client.http.post("/recommend", json={"user_id": user, "min_history_version": 1, "timeout_ms": 2000})
        )
        await asyncio.sleep(0.1)
        await asyncio.to_thread(deploy, root, use("blue", why="test"))
        while (await client.http.get("/model")).json()["version"] != "blue":  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0.01)
        await client.http.post("/events", json={"user_id": user, "item_id": "blue-i01"})
        return (await waiting).json()

    answer = client.run(ask())
    assert (answer["model"]["version"], answer["source"], answer["degraded"]) == ("blue", "model", None)


def test_a_damaged_version_is_refused_until_it_is_whole(make_client, root, caplog):
    """Half copied, then wrong, then whole: named once for each reason, and taken as soon as it can be used."""
    client = make_client(bundle=root, follow_s=0.05)
    folder = copy_version(root, "blue", "green")
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"blue"', '"green"'))
    network = folder / "network.onnx"
    whole = network.read_bytes()
    network.write_bytes(whole[:-1])
    deploy(root, use("green", why="test"))
    refused = wait_for(client, lambda model: model["refused"])["refused"]
    assert (refused["version"], refused["code"]) == ("green", "corrupt")
    assert client.recommend(items=["red-i01"])["source"] == "model"
    assert client.counts()["nextitem_model_refused"] == 1
    network.unlink()
    missing = wait_for(client, lambda model: model["refused"]["code"] == "missing")["refused"]
    assert missing["since"] == refused["since"]
    network.write_bytes(whole)
    wait_for(client, lambda model: model["version"] == "green" and model["refused"] is None)
    assert client.counts()["nextitem_model_refused"] == 0
    said = [record.fields["code"] for record in caplog.records if "cannot be used" in record.getMessage()]
    assert said == ["corrupt", "missing"]


def test_a_deployment_that_cannot_be_read_changes_nothing(make_client, root, caplog):
    """It is said and counted once, and the next good one is followed."""
    client = make_client(bundle=root, follow_s=0.05)
    wait_for(client, lambda model: model["follows"])
    (root / DEPLOYMENT).write_text("{")
    deadline = time.monotonic() + 30
    while not client.counts()['nextitem_model_reloads_total{result="malformed"}']:
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    client.run(asyncio.sleep(0.3))
    assert client.counts()['nextitem_model_reloads_total{result="malformed"}'] == 1
    assert client.get("/model").json()["version"] == "red"
    assert [record for record in caplog.records if "cannot be read" in record.getMessage()]
    (root / DEPLOYMENT).unlink()
    point_current(root, "nowhere")
    refused = wait_for(client, lambda model: model["refused"])["refused"]
    assert (refused["version"], refused["code"]) == ("nowhere", "missing")


@pytest.mark.usefixtures("quick")
def test_a_generation_that_goes_back_is_followed(make_client, root, caplog):
    """A folder that was restored: one warning, and what it says counts."""
    client = make_client(bundle=root, follow_s=0.05)
    first = deploy(root, use("blue", why="test"))
    second = deploy(root, use("red", why="test"))
    wait_for(client, lambda model: model["generation"] == second.generation)
    write_whole(root / DEPLOYMENT, first.to_bytes())
    assert wait_for(client, lambda model: model["generation"] == first.generation)["version"] == "blue"
    assert len([record for record in caplog.records if "went back" in record.getMessage()]) == 1


def test_a_candidate_is_named(make_client, root):
    """Version, mode and share, without a load: in shadow workers do nothing."""
    client = make_client(bundle=root, follow_s=0.05)
    deploy(root, set_candidate("blue"))
    shadow = wait_for(client, lambda model: model["candidate"])
    assert shadow["candidate"] == {"version": "blue", "mode": "shadow", "share": None, "in_use": False}


@pytest.mark.usefixtures("quick")
def test_who_follows_nothing_looks_when_told(make_client, root):
    """With --follow-s 0 a change waits until somebody says so."""
    client = make_client(bundle=root, follow_s=0)
    deploy(root, use("blue", why="test"))
    client.run(asyncio.sleep(0.7))
    assert client.get("/model").json()["version"] == "red"
    client.service.watcher.refresh()
    wait_for(client, lambda model: model["version"] == "blue")


def test_a_single_bundle_is_not_followed(make_client, root):
    """There is nothing that could change."""
    client = make_client(bundle=root / "red")
    model = client.get("/model").json()
    assert (model["follows"], model["generation"], client.service.watcher) == (False, 0, None)


def await_one_request(client, sent):
    """Wait until this worker asks the supervisor to replace all, which it does not do again at the next try."""
    deadline = time.monotonic() + 30
    while not sent:
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    client.run(asyncio.sleep(1.5))  # it is not asked again at the next try
    assert sent == [(os.getppid(), signal.SIGHUP)]


def test_a_load_that_would_hold_up_answers_is_left_to_the_supervisor(make_client, root, tmp_path, monkeypatch):
    """One of several workers asks for all to be replaced, once; a worker that is alone loads in place."""
    sent = []
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, "", held_s=1.0))
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    client = make_client(bundle=root, follow_s=0.05)
    (tmp_path / "instance").mkdir()
    client.service.watcher._instance = Instance(tmp_path / "instance")
    deploy(root, use("blue", why="test"))
    await_one_request(client, sent)
    assert client.get("/model").json()["version"] == "red"
    client.service.watcher._instance = Instance()
    wait_for(client, lambda model: model["version"] == "blue")


def test_a_candidate_whose_load_would_hold_up_answers_comes_with_new_workers(
    make_client, root, tmp_path, monkeypatch, caplog
):
    """This worker asks for them once, and the champion answers; a new one has it before it takes requests."""
    caplog.set_level(logging.INFO)
    sent = []
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, "", held_s=0.298))
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    (tmp_path / "instance").mkdir()
    instance = Instance(tmp_path / "instance")
    monkeypatch.setattr(Instance, "from_environment", lambda: instance)
    client = make_client(bundle=root, follow_s=0.05)
    deployment = deploy(root, set_candidate("blue", mode="canary", share=0.5))
    await_one_request(client, sent)
    said = "Workers are replaced one by one: loading blue holds the interpreter 298 ms"
    assert caplog.messages.count(said) == 1
    model = client.get("/model").json()
    assert (model["version"], model["candidate"]["in_use"], model["refused"]) == ("red", False, None)
    answers = [client.recommend(user_id=f"u{number}", items=["red-i01"]) for number in range(20)]
    assert {answer["model"]["version"] for answer in answers} == {"red"}

    with open_version(root, "blue", pin=None) as bundle:
        instance.book.note(bundle, Verdict(None, "", held_s=0.298, files=describe_files(bundle)))
    new = make_client(bundle=root, follow_s=0.05)
    assert new.service.recommender.variants.candidate.version == "blue"
    wait_for(new, lambda model: model["generation"] == deployment.generation and model["candidate"]["in_use"])
    assert new.counts()["nextitem_models_loaded"] == 2
    answers = [new.recommend(user_id=f"u{number}", items=["red-i01", "blue-i01"]) for number in range(20)]
    assert {answer["model"]["version"] for answer in answers} == {"red", "blue"}
    assert "Serving the candidate" not in " ".join(caplog.messages)
    assert [number for _, number in sent].count(signal.SIGHUP) == 1


def test_a_worker_that_is_alone_loads_its_candidate_in_place(make_client, root, monkeypatch, caplog):
    """There is nobody to replace it: the log says for how long the loop stood."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, "", held_s=0.298))
    client = make_client(bundle=root, follow_s=0.05)
    deploy(root, set_candidate("blue", mode="canary", share=0.5))
    wait_for(client, lambda model: model["candidate"] and model["candidate"]["in_use"])
    deadline = time.monotonic() + 30
    while not (said := [record for record in caplog.records if record.getMessage().startswith("Serving the cand")]):
        assert time.monotonic() < deadline  # it is said once the loop is watched no more
        client.run(asyncio.sleep(0.02))
    assert said[0].fields["loop_stood_s"] >= 0


def test_without_a_candidate_there_is_none_to_withdraw(make_client, root):
    """Nothing is closed, and the champion answers on."""
    client = make_client(bundle=root, follow_s=0.05)
    wait_for(client, lambda model: model["follows"])
    swapper, loop = client.service.watcher._swapper, client.service.watcher._loop
    client.run(asyncio.to_thread(swapper.withdraw, loop=loop))
    assert client.recommend(items=["red-i01"])["model"]["version"] == "red"


def test_a_wake_that_comes_as_the_wait_ends_is_not_lost(make_client, root):
    """SIGHUP or POST /models/refresh at that moment is acted on at the next look."""
    client = make_client(bundle=root, follow_s=0)
    client.service.watcher.stop()

    class LateEvent(threading.Event):
        """Is set just after a wait has ended without it."""

        def wait(self, timeout=None):
            del timeout
            woken = self.is_set()
            self.set()
            return woken

    client.service.watcher._woken = LateEvent()
    assert [client.service.watcher._wait() for _ in range(2)] == [False, True]


@pytest.mark.usefixtures("quick")
def test_the_store_knows_what_a_worker_serves(make_client, root):
    """At once after a change; a worker that ends takes it back."""
    client = make_client(bundle=root, follow_s=0.05)
    me = client.service.reporter.describe().worker
    deploy(root, use("blue", why="test"))
    wait_for(client, lambda model: model["version"] == "blue" and model["generation"] == 1)

    async def read():
        return {state.worker: state for state in await read_worker_states(client.service.reporter._client)}

    deadline = time.monotonic() + 30
    while (state := client.run(read()).get(me)) is None or state.champion != "blue":
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    assert (state.generation, state.candidate, state.refused) == (1, None, None)
    assert state.folder_id == read_deployment(root).folder_id != ""


def test_ids_are_read_before_the_first_change(make_client, root):
    """A folder without deployment.json has a key, too; the worker's answers are known by it, whatever it does."""
    client = make_client(bundle=root, follow_s=0.05)
    wait_for(client, lambda model: model["follows"])
    ids = RecommendationIds(read_deployment(root).id_key)
    deadline = time.monotonic() + 60
    while (origin := ids.read(client.recommend(items=["red-i01"])["recommendation_id"], None)) is None:
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    assert (origin.generation, origin.variant, origin.from_model) == (0, "champion", True)


@pytest.fixture
def fault_file(tmp_path, monkeypatch):
    """A file that says how the engines of this process fail from now on."""
    monkeypatch.setattr(onnxruntime.InferenceSession, "run", onnxruntime.InferenceSession.run)  # as it is afterwards
    inject_faults(tmp_path / "fault")
    return tmp_path / "fault"


def fail_at_once(client, root, fault_file, fault):
    """Make blue the champion, and let its first runs fail."""
    wait_for(client, lambda model: model["follows"])
    deploy(root, use("blue", why="test"))
    wait_for(client, lambda model: model["version"] == "blue" and model["generation"] == 1)
    fault_file.write_text(fault)
    for _ in range(LEAST_RUNS):
        client.recommend(items=["blue-i01"])


@pytest.mark.usefixtures("quick")
def test_a_champion_that_fails_at_once_is_returned_from(make_client, root, fault_file, caplog):
    """The one before answers again, and the new one is not tried before somebody deploys anew."""
    client = make_client(bundle=root, follow_s=0.05)
    fail_at_once(client, root, fault_file, f"raise {LEAST_RUNS}")
    model = wait_for(client, lambda model: model["refused"])
    assert (model["version"], model["generation"], model["refused"]["version"]) == ("red", 0, "blue")
    assert model["refused"]["code"] == client.service.reporter.describe().refused.code == "failing"
    assert client.service.reporter.describe().refused.generation == 1
    assert client.recommend(items=["red-i01"])["source"] == "model"
    client.run(asyncio.sleep(RETRY_S[0] + 0.5))  # another refusal would have been tried again
    assert client.get("/model").json()["version"] == "red"
    counts = client.counts()
    assert counts["nextitem_model_refused"] == counts['nextitem_model_reloads_total{result="refused"}'] == 1
    assert (counts["nextitem_models_loaded"], counts["nextitem_deployment_generation"]) == (1, 0)
    assert [r.fields["code"] for r in caplog.records if "cannot be used" in r.getMessage()] == ["failing"]
    deploy(root, use("red", why="test"))
    wait_for(client, lambda model: model["generation"] == 2 and model["refused"] is None)
    deploy(root, use("blue", why="test"))
    wait_for(client, lambda model: model["version"] == "blue")


@pytest.mark.usefixtures("quick")
def test_the_judge_takes_back_a_champion_that_workers_went_back_from(make_client, root, fault_file):
    """By what the worker reports; then the deployment names what answers, and nothing is refused any more."""
    client = make_client(bundle=root, follow_s=0.05)
    fail_at_once(client, root, fault_file, f"raise {LEAST_RUNS}")
    wait_for(client, lambda model: model["refused"])

    async def judge():
        store = connect(client.service.settings.redis_url)
        models: Any = SimpleNamespace(deployment=read_deployment(root))
        guard = ChampionGuard(root, LiveScores(), models, count_failing=partial(count_failing, store))
        try:
            return await guard.check()
        finally:
            await store.aclose()

    deadline = time.monotonic() + 30
    while not client.run(judge()):  # the worker reports soon
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.05))
    model = wait_for(client, lambda model: model["generation"] == 2 and not model["refused"])
    assert model["version"] == "red"
    entry = last_entry(root)
    assert entry is not None
    assert (entry["by"], entry["action"], entry["to"]["champion"]) == ("judge", "rollback", "red")
    assert not client.run(judge())


@pytest.mark.usefixtures("quick")
def test_where_the_champion_before_fails_too_nothing_changes(make_client, root, fault_file, caplog):
    """It is not the model then: the new one stays, and answers as soon as engines work."""
    client = make_client(bundle=root, follow_s=0.05)
    fail_at_once(client, root, fault_file, "raise")
    deadline = time.monotonic() + 60
    while not [record for record in caplog.records if "cannot be used again" in record.getMessage()]:
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    fault_file.unlink()
    assert client.recommend(items=["blue-i01"])["model"]["version"] == "blue"
    assert client.get("/model").json()["refused"] is None


@pytest.mark.usefixtures("quick")
def test_a_stray_current_is_named_once(make_client, root, caplog):
    """Somebody wrote it as before there were deployments: it counts no more."""
    client = make_client(bundle=root, follow_s=0.05)
    deploy(root, use("blue", why="test"))
    wait_for(client, lambda model: model["version"] == "blue")
    point_current(root, "red")
    client.run(asyncio.sleep(0.5))
    said = [record.getMessage() for record in caplog.records if "`current` names" in record.getMessage()]
    assert said == ["`current` names red, but deployment.json counts: blue answers"]
    assert client.get("/model").json()["version"] == "blue"


def test_a_refused_version_is_tried_ever_later():
    """After 1, 2, 4 ... 60 s, and at once for other files; nothing is remembered for good."""
    now_s = 0.0
    retries = Retries(lambda: now_s)
    refusal = ModelRefused("corrupt", "why")
    for number in range(len(RETRY_S) + 2):
        assert retries.is_due(("red", 1))
        assert retries.refuse("red", refusal, generation=number) == (number == 0)
        wait_s = RETRY_S[min(number, len(RETRY_S) - 1)]
        now_s += wait_s - 0.01
        assert not retries.is_due(("red", 1))
        now_s += 0.02
    assert retries.is_due(("red", 2))
    assert retries.refuse("red", ModelRefused("golden", "why"), generation=9)
    last = retries.refusal
    assert last is not None
    assert (last.code, last.generation) == ("golden", 9)
    retries.clear()
    assert retries.refusal is None
    assert retries.is_due(("red", 2))
