"""Versions beside champion and candidate, for requests that name them: loaded, asked, listed, refused and freed."""

import asyncio
import gc
import logging
import shutil
import signal
import time
import weakref
from types import SimpleNamespace

import pytest

from benchmarks.harness.bundles import rename_items
from benchmarks.reliability.swaps.traffic import make_root
from model.contract.deployment.changes import promote, set_candidate, use
from model.contract.deployment.writer import change_deployment
from service.auth.key_file import Scope, create_key
from service.deployment import watcher
from service.deployment.choices import open_version
from service.deployment.instance import Instance
from service.deployment.probe import Verdict, describe_files

WORDS = ["auto", "model", "popular"]


@pytest.fixture
def root(bundle_path, tmp_path):
    """A folder with the versions red, which is current, blue and green, whose items begin with their names."""
    folder = make_root(tmp_path / "bundles")
    rename_items(bundle_path, folder, "green", prefix="green-")
    return folder


@pytest.fixture(autouse=True)
def tried(monkeypatch):
    """The versions that were tried: not in a process of their own, which the tests of the probe do."""
    versions = []

    def probe(_settings, bundle, **_named):
        versions.append(bundle.manifest.version)
        return Verdict(None, "")

    monkeypatch.setattr(watcher, "probe", probe)
    return versions


def deploy(root, change):
    """Change the deployment as a command does."""
    return change_deployment(root, change, action="use", by="cli:test", force=True)


def wait_for(client, holds):
    """Let the loop turn until something holds of GET /models; the document."""
    deadline = time.monotonic() + 60
    while not holds(models := client.get("/models").json()):
        assert time.monotonic() < deadline, models
        client.run(asyncio.sleep(0.02))
    return models


def versions_of(models):
    """The versions that can be asked for."""
    return models["rankers"][len(WORDS) :]


def ask(client, version, **fields):
    """The answer of a version, after an item of its own and one of red."""
    return client.recommend(items=["red-i01", f"{version}-i01"], ranker=version, **fields)


def test_a_version_answers_who_names_it(make_client, root, tried, user):
    """By its own items, whoever the user is assigned to; everybody else gets the champion, and no trial counts it."""
    client = make_client(bundle=root, follow_s=0.05, also_serve=("blue", "green"))
    models = wait_for(client, lambda models: len(versions_of(models)) == 3)
    assert (models["rankers"], models["refused"]) == ([*WORDS, "red", "blue", "green"], [])
    assert client.get("/model").json()["rankers"] == models["rankers"]
    assert tried == ["blue", "green"]
    assert client.counts()["nextitem_models_loaded"] == 3
    for version in ("blue", "green"):
        client.send({"user_id": user, "item_id": f"{version}-i02"})
        answer = ask(client, version, user_id=user)
        assert answer["model"] == {"name": "tiny", "version": version, "variant": "comparison"}
        assert (answer["source"], answer["degraded"]) == ("model", None)
        assert "red-i01" in answer["unknown_item_ids"]
        assert all(item["item_id"].startswith(f"{version}-") for item in answer["items"])
        assert client.service.recommender.variants.ids.read(answer["recommendation_id"], user) is None
    assert ask(client, "red")["model"]["variant"] == "champion"
    assert ask(client, "red")["items"] == client.recommend(items=["red-i01", "red-i01"], ranker="model")["items"]
    assert client.recommend(user_id=user)["model"] == {"name": "tiny", "version": "red", "variant": "champion"}
    series = 'nextitem_recommendations_total{source="model",variant="comparison",version="green"}'
    assert client.counts()[series] == 1
    response = client.post("/recommend", {"items": ["red-i01"], "ranker": "c4n4ry"})
    [error] = response.json()["errors"]
    assert (response.status_code, error["pointer"], error["code"]) == (422, "/ranker", "unknown_ranker")
    assert "c4n4ry" not in response.text


def test_all_other_fields_are_as_ever(make_client, root):
    """Rules, candidates, reasons and a deadline of the version's own model."""
    client = make_client(bundle=root, follow_s=0.05, also_serve=("blue",))
    wait_for(client, lambda models: "blue" in versions_of(models))
    some = [f"blue-i{number:02}" for number in range(2, 9)]
    plain = ask(client, "blue", candidate_item_ids=some, k=3)
    pinned = ask(
        client, "blue", candidate_item_ids=some, k=3, pins=[{"item_id": plain["items"][2]["item_id"], "rank": 1}]
    )
    assert pinned["items"][0]["item_id"] == plain["items"][2]["item_id"]
    assert pinned["model"]["version"] == "blue"
    assert ask(client, "blue", explain=True)["explained"] == 1
    variant = next(one for one in client.service.recommender.variants.compared if one.version == "blue")
    assert not variant.runner.may_block

    def fail(_names, _feed):
        raise RuntimeError("injected")

    variant.model.engine._session = SimpleNamespace(run=fail)
    answer = ask(client, "blue")
    assert (answer["source"], answer["degraded"]) == ("popular", "engine_unavailable")
    assert client.recommend(items=["red-i01"])["degraded"] is None
    assert client.get("/health/ready").json()["status"] == "ok"


def test_a_version_and_a_variant_contradict_each_other(client):
    """Both say who answers."""
    document = {"items": ["i01"], "variant": "champion", "ranker": "20261121T101500-tiny"}
    response = client.post("/recommend", document)
    [error] = response.json()["errors"]
    assert (response.status_code, error["pointer"], error["code"]) == (422, "/ranker", "ranker_variant")
    assert client.recommend(**{**document, "ranker": "popular"})["source"] == "popular"


def test_versions_are_for_keys_that_may_choose(make_client, root, tmp_path):
    """As `variant` is: else every client could load a model that nobody has tried on users."""
    file = tmp_path / "keys.json"
    scopes: tuple[Scope, ...] = ("recommend", "models", "admin")
    keys = {scope: create_key(file, ["recommend", scope]) for scope in scopes}
    client = make_client(bundle=root, keys_file=file)
    for scope, key in keys.items():
        headers = {"authorization": f"Bearer {key}"}
        for ranker, status in (
            ("red", 200 if scope != "recommend" else 403),
            ("popular", 200),
            ("blue", 422 if scope != "recommend" else 403),
        ):
            response = client.post("/recommend", {"items": ["red-i01"], "ranker": ranker}, headers=headers)
            assert response.status_code == status, (scope, ranker, response.text)
        assert client.get("/model", headers=headers).json()["rankers"] == [*WORDS, "red"]


def test_what_answers_anyway_is_not_loaded_twice(make_client, root, tried):
    """The champion, a candidate in canary, and each after a change: one engine a version, and what left is freed."""
    deploy(root, set_candidate("green", mode="canary", share=0.5))
    client = make_client(bundle=root, follow_s=0.05, also_serve=("red", "blue", "green"))
    wait_for(client, lambda models: {*versions_of(models)} == {"red", "blue", "green"})
    await_loaded(client, 3)
    assert ask(client, "green")["model"]["variant"] == "candidate"
    assert tried == ["green", "blue"]
    gc.collect()
    blue = weakref.ref(client.service.recommender.variants.compared[0].model.engine)
    deploy(root, use("blue"))
    wait_for(client, lambda models: models["deployment"]["champion"] == versions_of(models)[0] == "blue")
    wait_for(client, lambda models: {*versions_of(models)} == {"red", "blue", "green"})
    await_loaded(client, 3)
    assert blue() is None
    assert ask(client, "blue")["model"]["variant"] == "champion"
    assert ask(client, "red")["model"]["variant"] == "comparison"
    deploy(root, promote())
    wait_for(client, lambda models: versions_of(models)[0] == "green" and len(versions_of(models)) == 3)
    await_loaded(client, 3)
    assert {ask(client, version)["model"]["variant"] for version in ("red", "blue")} == {"comparison"}


def await_loaded(client, count):
    """Wait until so many models are in memory."""
    deadline = time.monotonic() + 60
    while (loaded := client.counts()["nextitem_models_loaded"]) != count:
        assert time.monotonic() < deadline, loaded
        client.run(asyncio.sleep(0.02))


def test_a_candidate_in_shadow_can_be_named(make_client, root):
    """Workers have none in shadow, unless it is to be served for comparison; in canary it answers its share, too."""
    deploy(root, set_candidate("blue"))
    client = make_client(bundle=root, follow_s=0.05, also_serve=("blue",))
    wait_for(client, lambda models: "blue" in versions_of(models))
    assert ask(client, "blue")["model"]["variant"] == "comparison"
    deploy(root, set_candidate("blue", mode="canary", share=1.0))
    deadline = time.monotonic() + 60
    while (answer := client.recommend(user_id="u", items=["blue-i01"]))["model"]["variant"] != "candidate":
        assert time.monotonic() < deadline, answer
    assert ask(client, "blue")["model"]["variant"] == "candidate"
    await_loaded(client, 2)


def test_what_cannot_be_loaded_is_told(make_client, root, caplog):
    """In the log, once, and by GET /models; the others are served, and what is mended comes by itself."""
    shutil.copytree(root / "green", root / "renamed")
    network = root / "blue" / "network.onnx"
    content = network.read_bytes()
    network.write_bytes(b"")
    client = make_client(bundle=root, follow_s=0.05, also_serve=("blue", "nowhere", "renamed", "green"))
    models = wait_for(client, lambda models: len(models["refused"]) == 3 and "green" in versions_of(models))
    codes = {refusal["version"]: refusal["code"] for refusal in models["refused"]}
    assert codes == {"blue": "corrupt", "nowhere": "missing", "renamed": "format"}
    assert client.get("/model").json()["refused"] is None
    assert client.counts()["nextitem_model_refused"] == 0
    assert client.get("/health/ready").json()["status"] == "ok"
    assert client.post("/recommend", {"items": [], "ranker": "blue"}).status_code == 422
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Version ")]
    assert sorted(said) == [
        f"Version {version} cannot be used for comparison: the service goes on without it"
        for version in ("blue", "nowhere", "renamed")
    ]
    network.write_bytes(content)
    wait_for(client, lambda models: len(models["refused"]) == 2 and "blue" in versions_of(models))


def test_workers_that_follow_nothing_have_them_from_the_start(make_client, root):
    """With --follow-s 0 all are loaded at the first look, and a change of the deployment is left alone."""
    client = make_client(bundle=root, follow_s=0, also_serve=("blue", "green"))
    wait_for(client, lambda models: len(versions_of(models)) == 3)
    deploy(root, use("blue"))
    client.run(asyncio.sleep(0.2))
    assert client.get("/model").json()["version"] == "red"
    assert client.post("/models/refresh").status_code == 200
    wait_for(client, lambda models: versions_of(models) == ["blue", "green"])
    assert ask(client, "blue")["model"]["variant"] == "champion"


def test_a_load_that_would_hold_up_answers_comes_with_new_workers(make_client, root, tmp_path, monkeypatch):
    """As a candidate's does: a new worker has it before it takes requests."""
    sent: list[int] = []
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, "", held_s=0.298))
    monkeypatch.setattr("os.kill", lambda _pid, number: sent.append(number))
    (tmp_path / "instance").mkdir()
    instance = Instance(tmp_path / "instance")
    monkeypatch.setattr(Instance, "from_environment", lambda: instance)
    client = make_client(bundle=root, follow_s=0.05, also_serve=("blue",))
    deadline = time.monotonic() + 60
    while signal.SIGHUP not in sent:
        assert time.monotonic() < deadline
        client.run(asyncio.sleep(0.02))
    assert client.get("/model").json()["rankers"] == [*WORDS, "red"]
    with open_version(root, "blue", pin=None) as bundle:
        instance.book.note(bundle, Verdict(None, "", held_s=0.298, files=describe_files(bundle)))
    new = make_client(bundle=root, follow_s=0.05, also_serve=("blue",))
    assert [variant.version for variant in new.service.recommender.variants.compared] == ["blue"]
    assert ask(new, "blue")["model"]["variant"] == "comparison"


def test_a_single_bundle_has_nothing_beside_it(make_client, root, caplog):
    """The log says that the option has no meaning."""
    caplog.set_level(logging.ERROR)
    client = make_client(bundle=root / "red", also_serve=("blue",))
    assert client.get("/model").json()["rankers"] == [*WORDS, "red"]
    assert "--also-serve is left out" in caplog.text


def test_workers_report_what_they_are_to_have(make_client, root):
    """So that `models prune` spares it, loaded or not."""
    client = make_client(bundle=root, also_serve=("blue", "nowhere"))
    assert client.service.reporter.describe().also_serve == ("blue", "nowhere")
