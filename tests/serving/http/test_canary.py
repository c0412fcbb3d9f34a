"""A candidate in canary: the same users each time, nobody degraded whatever it does, and ids that say who answered.

Candidates of services in this process are not tried in a process of their own first.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest
from redis.asyncio import Redis

from benchmarks.harness.bundles import rename_items
from model.contract.deployment.changes import promote, return_candidate, set_candidate, set_share
from model.contract.deployment.document import read_deployment
from model.contract.deployment.writer import change_deployment
from service.auth.key_file import Scope, create_key
from service.deployment.probe import Verdict
from service.ranking.recommendation_id import RecommendationIds
from service.recommend.assignment import assign
from service.recommend.variant_breaker import PAUSE_S
from service.store.variant_counts import read_variant_counts
from service.store.worker_states import REPORT_EVERY_S, read_worker_states

CHAMPION, CANDIDATE = "20261121T101500-tiny", "20261122T101500-trial"
BY_MODEL = {None, "store_unavailable"}
"""How answers by a model may be degraded: a store that a busy machine makes slow is another promise."""
USERS = [f"user-{number}" for number in range(400)]


@pytest.fixture
def bundles(bundle_path, tmp_path):
    """A bundle folder with a champion and another version of it."""
    root = Path(shutil.copytree(bundle_path, tmp_path / "bundles"))
    rename_items(bundle_path, root, CANDIDATE, prefix="")
    return root


@pytest.fixture
def start(make_client, bundles, monkeypatch):
    """Start a service in this process that follows the folder, with the candidate in use by a share of users."""
    monkeypatch.setattr("service.deployment.watcher.probe", lambda *_, **__: Verdict(None, ""))

    def start(share, *, headers=None, **settings):
        deploy(bundles, set_candidate(CANDIDATE, mode="canary", share=share))
        client = make_client(bundle=bundles, follow_s=0.05, **settings)
        await_model(client, lambda model: model["candidate"] and model["candidate"]["in_use"], headers=headers)
        return client

    return start


def deploy(bundles, change):
    """Change the deployment. Returns the one that stands then."""
    return change_deployment(bundles, change, action="test", by="test")


def await_model(client, holds, **request):
    """Wait until GET /model is so."""
    deadline = time.monotonic() + 120
    while not holds(model := client.get("/model", **request).json()):
        assert time.monotonic() < deadline, model
        client.run(asyncio.sleep(0.02))


def ask_batch(client, users, **fields):
    """One batch: an answer for each user."""
    requests = [{"user_id": user, "items": ["i01"], "timeout_ms": 2000, **fields} for user in users]
    answers = []
    for first in range(0, len(requests), 200):
        response = client.post("/recommend/batch", {"requests": requests[first : first + 200]})
        assert response.status_code == 200, response.text
        answers += response.json()["responses"]
    return answers


def ask_at_once(client, users, **fields):
    """Requests of their own at the same time, an answer for each user."""

    async def ask():
        posts = (
            client.http.post("/recommend", json={"user_id": user, "items": ["i01"], "timeout_ms": 2000, **fields})
            for user in users
        )
        return [response.json() for response in await asyncio.gather(*posts)]

    return client.run(ask())


def list_assigned(bundles, users=USERS):
    """The variant of each user by the deployment of now."""
    now = read_deployment(bundles)
    return [assign(user, salt=now.salt, share=now.share) for user in users]


def count_fallbacks(client):
    """Answers by the champion for the candidate, by series."""
    counts = client.counts().items()
    return {name: count for name, count in counts if name.startswith("nextitem_variant_fallbacks_total")}


def await_report(client, holds):
    """Wait until what the store knows of the service's worker is so, for less long than until its next report."""

    async def read():
        async with Redis.from_url(client.service.settings.redis_url) as store:
            worker = client.service.reporter.describe().worker
            return [state for state in await read_worker_states(store) if state.worker == worker]

    deadline = time.monotonic() + REPORT_EVERY_S / 2
    while not any(map(holds, states := client.run(read()))):
        assert time.monotonic() < deadline, states
        client.run(asyncio.sleep(0.05))


def read_counts(client, bundles):
    """What the service has written into the store of this generation."""

    async def read():
        await client.service.tally_writer.write()
        async with Redis.from_url(client.service.settings.redis_url) as store:
            now = read_deployment(bundles)
            return await read_variant_counts(store, now.folder_id, now.generation)

    return client.run(read())


class Fault:
    """What a candidate's session does from now on, in place of the network or before it."""

    def __init__(self, kind, session):
        self.kind = kind
        self._session = session

    def run(self, *arguments):
        """As the session's own."""
        if self.kind == "raises":
            raise RuntimeError("injected")
        if self.kind == "slow":
            time.sleep(0.5)
        answer = self._session.run(*arguments)
        if self.kind == "nan":
            return [np.full_like(part, np.nan) if part.dtype.kind == "f" else part for part in answer]
        return answer


def test_share_and_promotion_change_without_a_load(start, bundles):
    """Everybody keeps the variant that the share gives, by the same loaded models, up to the promotion."""
    client = start(0.05)
    before = client.service.recommender.variants
    for share in (0.2, 0.5, 0.05):
        generation = deploy(bundles, set_share(share)).generation
        await_model(client, lambda model, wanted=generation: model["generation"] == wanted)
        answers = ask_batch(client, USERS)
        given = [answer["model"]["variant"] for answer in answers]
        strays = [wanted for wanted, one in zip(list_assigned(bundles), given, strict=True) if wanted != one]
        assert set(strays) <= {"candidate"}  # a busy machine makes any model slow
        assert len(strays) <= sum(count_fallbacks(client).values())
        assert {answer["degraded"] for answer in answers} <= BY_MODEL
        now = client.service.recommender.variants
        assert (now.champion, now.candidate) == (before.champion, before.candidate)
    assert client.counts()["nextitem_models_loaded"] == 2
    assert client.post("/recommend", {"items": ["i01"]}).json()["model"]["variant"] == "champion"  # nobody's
    generation = deploy(bundles, promote()).generation
    await_model(client, lambda model: model["generation"] == generation)
    now = client.service.recommender.variants
    assert (now.champion, now.candidate) == (before.candidate, None)
    answers = ask_batch(client, USERS)
    assert {(answer["model"]["version"], answer["model"]["variant"]) for answer in answers} == {(CANDIDATE, "champion")}
    assert {answer["source"] for answer in answers} == {"model"}
    del before, now
    deadline = time.monotonic() + 60
    while client.counts()["nextitem_models_loaded"] > 1:
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.05))


def test_a_candidate_that_is_returned_is_freed_and_a_refused_one_harms_nobody(start, bundles):
    """Its users are the champion's again, or stay so; who asks for it by name is told."""
    client = start(0.5)
    deploy(bundles, return_candidate())
    await_model(client, lambda model: model["candidate"] is None)
    assert {answer["model"]["variant"] for answer in ask_batch(client, USERS)} == {"champion"}
    response = client.post("/recommend", {"items": ["i01"], "variant": "candidate"})
    assert (response.status_code, response.json()["type"]) == (409, "urn:nextitem:problem:variant-unavailable")
    deploy(bundles, set_candidate(CANDIDATE, mode="canary", share=0.5))
    await_model(client, lambda model: model["candidate"] is not None and model["candidate"]["in_use"])
    deploy(bundles, return_candidate())
    await_model(client, lambda model: model["candidate"] is None)
    network = bundles / CANDIDATE / "network.onnx"
    network.write_bytes(network.read_bytes()[:-1])
    deploy(bundles, set_candidate(CANDIDATE, mode="canary", share=0.5))
    await_model(client, lambda model: model["refused"] is not None)
    model = client.get("/model").json()
    assert (model["refused"]["version"], model["refused"]["code"]) == (CANDIDATE, "corrupt")
    assert not model["candidate"]["in_use"]
    name = 'nextitem_variant_fallbacks_total{reason="not_loaded"}'
    before = client.counts()[name]  # of users whose candidate was just withdrawn
    answers = ask_batch(client, USERS)
    assert {answer["model"]["version"] for answer in answers} == {CHAMPION}
    assert {answer["degraded"] for answer in answers} <= BY_MODEL
    counts = client.counts()
    assigned = list_assigned(bundles).count("candidate")
    assert counts[name] - before == assigned > 0
    assert counts["nextitem_model_refused"] == 1
    stored = read_counts(client, bundles)
    assert (stored["candidate"].answers, stored["candidate"].failures) == (assigned, 0)


def test_who_waits_counts_nothing_against_a_candidate_that_is_withdrawn(start, bundles):
    """A request that waits for its history asks it again and again: that it answers no more is not its failure."""
    client = start(0.5)
    names = (f"waits-{number}" for number in range(100))
    now = read_deployment(bundles)
    user = next(name for name in names if assign(name, salt=now.salt, share=now.share) == "candidate")

    async def ask():
        request = {"user_id": user, "min_history_version": 1, "timeout_ms": 2000}
        waiting = asyncio.create_task(client.http.post("/recommend", json=request))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(deploy, bundles, return_candidate())
        return await waiting

    assert client.run(ask()).json()["type"] == "urn:nextitem:problem:history-version"
    assert client.service.recommender.variants.candidate is None
    assert client.counts()["nextitem_variant_breakers_opened_total"] == 0


@pytest.mark.parametrize("kind", ["raises", "nan", "slow"])
def test_a_candidate_that_fails_degrades_nobody_and_is_taken_out_of_use(start, bundles, kind):
    """Within seconds; until then, and from then on, the champion answers its users. It is counted and told."""
    client = start(0.5)
    engine = client.service.recommender.variants.candidate.model.engine
    engine._session = Fault(kind, engine._session)
    assigned = list_assigned(bundles)
    began_s = time.monotonic()
    while client.get("/model").json()["candidate"]["in_use"]:
        assert time.monotonic() < began_s + 60
        answers = ask_at_once(client, USERS[:40], timeout_ms=1000)
        assert {answer["degraded"] for answer in answers} <= BY_MODEL
        assert {answer["source"] for answer in answers} == {"model"}
        assert {answer["model"]["variant"] for answer in answers} == {"champion"}
    counts = client.counts()
    assert counts["nextitem_variant_breakers_opened_total"] == 1
    reason = "slow" if kind == "slow" else "failed"
    assert counts[f'nextitem_variant_fallbacks_total{{reason="{reason}"}}'] > 0
    stored = read_counts(client, bundles)
    assert stored["candidate"].breakers_opened == 1
    assert 0 < stored["candidate"].failures <= stored["candidate"].answers
    assert stored["champion"].failures == 0
    answers = ask_batch(client, USERS)
    assert {answer["degraded"] for answer in answers} <= BY_MODEL
    assert {answer["model"]["version"] for answer in answers} == {CHAMPION}
    counts = client.counts()
    assert counts['nextitem_variant_fallbacks_total{reason="breaker_open"}'] >= assigned.count("candidate")
    assert client.service.reporter.describe().breaker_open
    await_report(client, lambda state: state.breaker_open)  # at once, not when the next report is due
    client.service.recommender.variants.candidate.monitor._breaker._opened_s -= PAUSE_S
    await_report(client, lambda state: not state.breaker_open)


def test_a_batch_that_the_candidate_fails_is_the_champions(start, bundles):
    """Its requests are asked again together, within the same time; answers stay in order."""
    client = start(0.5)
    engine = client.service.recommender.variants.candidate.model.engine
    engine._session = Fault("raises", engine._session)
    answers = ask_batch(client, USERS[:200], timeout_ms=1000)
    assert [answer["user_id"] for answer in answers] == USERS[:200]
    assert {answer["model"]["version"] for answer in answers} == {CHAMPION}
    assert {answer["degraded"] for answer in answers} <= BY_MODEL
    assigned = list_assigned(bundles, USERS[:200]).count("candidate")
    assert sum(count_fallbacks(client).values()) == assigned


def test_who_may_choose_the_variant(start, bundles, tmp_path):
    """A key with models or admin besides recommend; both variants in one batch, for no trial."""
    keys_file = tmp_path / "keys.json"
    allowed: list[tuple[Scope, ...]] = [("recommend", "models"), ("recommend", "admin")]
    refused: list[tuple[Scope, ...]] = [("recommend",), ("recommend", "events", "metrics"), ("models", "admin")]
    keys = {scopes: {"authorization": f"Bearer {create_key(keys_file, scopes)}"} for scopes in (*allowed, *refused)}
    client = start(0.5, keys_file=keys_file, headers=keys["recommend",])
    one = {"user_id": USERS[0], "items": ["i01"], "timeout_ms": 2000}
    both = {"requests": [one | {"variant": "champion"}, one, one | {"variant": "candidate"}]}
    for scopes in refused:
        for path, body in (("/recommend", one | {"variant": "champion"}), ("/recommend/batch", both)):
            response = client.post(path, body, headers=keys[scopes])
            assert (response.status_code, response.json()["type"]) == (403, "urn:nextitem:problem:forbidden")
    for scopes in allowed:
        for variant, version in (("champion", CHAMPION), ("candidate", CANDIDATE)):
            answer = client.post("/recommend", one | {"variant": variant}, headers=keys[scopes]).json()
            assert (answer["model"]["variant"], answer["model"]["version"]) == (variant, version)
        first, own, last = client.post("/recommend/batch", both, headers=keys[scopes]).json()["responses"]
        assert [answer["model"]["version"] for answer in (first, last)] == [CHAMPION, CANDIDATE]
        assert own["model"]["variant"] == list_assigned(bundles, USERS[:1])[0]
    stored = read_counts(client, bundles)
    assert sum(counts.answers for counts in stored.values()) == len(allowed)  # those that were not forced
    client.service.recommender.variants.candidate.monitor._breaker._opened_s = time.monotonic()
    response = client.post("/recommend", one | {"variant": "candidate"}, headers=keys[allowed[0]])
    assert response.json()["model"]["variant"] == "candidate"  # to see what is wrong with it
    for wrong in ("best", 1, True):
        assert client.post("/recommend", one | {"variant": wrong}, headers=keys[allowed[0]]).status_code == 422


def test_answers_are_attributed_as_a_client_counts_them(start, bundles):
    """By generation, variant and model, from the ids alone, by whoever reads the folder; forced ones to nobody."""
    client = start(0.2)
    counted: Counter[tuple] = Counter()
    attributed: Counter[tuple] = Counter()
    reader = RecommendationIds(read_deployment(bundles).id_key)
    for share in (0.5, 0.1):
        generation = deploy(bundles, set_share(share)).generation
        await_model(client, lambda model, wanted=generation: model["generation"] == wanted)
        answers = ask_batch(client, USERS) + ask_at_once(client, USERS[:50])
        answers += ask_batch(client, USERS[:200], items=None)  # from popular items
        assigned = [*list_assigned(bundles), *list_assigned(bundles, USERS[:50]), *list_assigned(bundles, USERS[:200])]
        for answer in answers:
            version = answer["model"]["version"]
            assert version == {"champion": CHAMPION, "candidate": CANDIDATE}[answer["model"]["variant"]]
            counted[generation, answer["model"]["variant"], answer["source"] == "model"] += 1
            origin = reader.read(answer["recommendation_id"], answer["user_id"])
            assert origin is not None
            attributed[origin.find_generation(generation), origin.variant, origin.from_model] += 1
            assert reader.read(answer["recommendation_id"], "somebody-else") is None
            assert abs(origin.made_ms / 1000 - time.time()) < 600
        stored = read_counts(client, bundles)
        assert sum(counts.answers for counts in stored.values()) == len(answers)
        assert stored["candidate"].answers == assigned.count("candidate")
        assert sum(stored["candidate"].runs) > 0
    assert attributed == counted
    assert len(counted) == 8
    for forced in ("champion", "candidate"):
        [answer] = ask_batch(client, USERS[:1], variant=forced)
        assert reader.read(answer["recommendation_id"], USERS[0]) is None


def test_workers_agree_and_so_do_those_that_come_later(start_process, bundles):
    """Two workers, which try the candidate in a process of its own first, serve users alike; so does a later one."""
    deploy(bundles, set_candidate(CANDIDATE, mode="canary", share=0.2))
    process = start_process("--workers", "2", "--bundle", str(bundles))
    await_agreement(process, bundles)
    killed = min(process.workers())
    os.kill(killed, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while killed in (workers := process.workers()) or len(workers) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    await_agreement(process, bundles)


def test_a_candidate_that_would_hold_up_answers_comes_with_new_workers(start_process, bundles, hooked):
    """Both workers are replaced, once, and all are answered; none loads it while it answers, nor does a later one."""
    (hooked / "held_s").write_text("0.298")
    process = start_process("--workers", "2", "--bundle", str(bundles), "--follow-s", "0.2")
    first = process.workers()
    deploy(bundles, set_candidate(CANDIDATE, mode="canary", share=0.2))
    deadline = time.monotonic() + 180
    while len(workers := process.workers()) != 2 or workers & first:
        assert time.monotonic() < deadline
        assert httpx.post(f"{process.url}/recommend", json={"items": ["i01"]}, timeout=60).status_code == 200
    await_agreement(process, bundles)
    os.kill(min(workers), signal.SIGKILL)
    await_agreement(process, bundles)
    while len(process.workers()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    await_agreement(process, bundles)
    process.close()
    said = [entry["message"] for entry in process.log]
    assert said.count(f"Workers are replaced one by one: loading {CANDIDATE} holds the interpreter 298 ms") == 1
    assert sum(message.startswith("All workers were replaced") for message in said) == 1
    assert not [message for message in said if message.startswith("Serving the candidate")]


def await_agreement(process, bundles):
    """Ask over ever new connections, which reach both workers, until all users get their variants many times in a row.

    Before a worker has loaded the candidate, its users are the champion's; nobody is ever the candidate's but them.
    """
    assigned, alike, deadline = list_assigned(bundles, USERS[:200]), 0, time.monotonic() + 120
    requests = [{"user_id": user, "items": ["i01"], "timeout_ms": 2000} for user in USERS[:200]]
    while alike < 12:
        assert time.monotonic() < deadline
        with contextlib.suppress(httpx.TransportError), httpx.Client(base_url=process.url, timeout=60) as http:
            answers = http.post("/recommend/batch", json={"requests": requests}).json()["responses"]
            variants = [answer["model"]["variant"] for answer in answers]
            strangers = {wanted for wanted, given in zip(assigned, variants, strict=True) if given == "candidate"}
            assert strangers <= {"candidate"}
            alike = alike + 1 if variants == assigned else 0
