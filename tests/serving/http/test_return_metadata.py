"""`return_metadata`: what the model that answered knows of each item, and nothing where it is not asked for."""

import asyncio
import json
import shutil
import time
from types import SimpleNamespace

import numpy as np
import orjson
import pytest

from benchmarks.harness.bundles import rename_items, seal
from model.contract.bundle import METADATA, read_bundle
from model.contract.deployment.changes import promote, set_candidate
from model.contract.deployment.writer import change_deployment
from model.contract.sessions import Sessions
from service.api.requests import MAX_BATCH_WITH_METADATA
from service.deployment import watcher
from service.deployment.probe import Verdict

CANDIDATE = "20261122T101500-trial"


@pytest.fixture(scope="module")
def known(bundle_path):
    """The metadata of the bundle by item id."""
    bundle = read_bundle(bundle_path)
    return {
        item_id: json.loads(line) for item_id, line in zip(bundle.vocabulary.item_ids, bundle.metadata, strict=True)
    }


def described(answer):
    """The metadata of each item of an answer."""
    return {item["item_id"]: item["metadata"] for item in answer["items"]}


@pytest.mark.parametrize("history", [[], ["i01"]], ids=["popular", "model"])
def test_all_of_it(client, known, history):
    """True gives each item what GET /items/{item_id} does, and an empty object where nothing is known."""
    answer = client.recommend(items=history, k=100, exclude_seen=False, return_metadata=True)
    assert answer["source"] == ("model" if history else "popular")
    assert described(answer) == known
    assert {} in known.values()


@pytest.mark.parametrize("history", [[], ["i01"]], ids=["popular", "model"])
@pytest.mark.parametrize("fields", [["title"], ["year", "title", "year"], ["nobody-knows"], ["x"] * 16])
def test_some_fields(client, known, history, fields):
    """Named fields alone, in the order asked; what an item does not have is left out."""
    answer = client.recommend(items=history, k=500, exclude_seen=False, return_metadata=fields)
    wanted = list(dict.fromkeys(fields))
    expected = {item: {name: data[name] for name in wanted if name in data} for item, data in known.items()}
    assert described(answer) == expected
    assert [list(data) for data in described(answer).values()] == [list(expected[item]) for item in described(answer)]


def test_neighbours_have_it_too(make_client, broken_bundle, monkeypatch, known):
    """What replaces a failing engine is described likewise."""
    sessions = Sessions(
        item_count=20,
        starts=np.array([0, 3]),
        items=np.array([8, 13, 17], dtype=np.int32),
        moments=np.zeros(1, dtype=np.int64),
    )
    client = make_client(bundle=broken_bundle("sessions.npy", sessions.to_bytes()))

    def fail(_names, _feed):
        raise RuntimeError("injected")

    monkeypatch.setattr(client.service.model.engine, "_session", SimpleNamespace(run=fail))
    answer = client.recommend(items=["i02"], k=3, return_metadata=["title"])
    assert answer["source"] == "neighbours"
    assert described(answer) == {
        item["item_id"]: {"title": known[item["item_id"]]["title"]} for item in answer["items"]
    }


def test_each_of_a_batch_as_it_wants(client, known):
    """All, some, or none."""
    wanted = [True, ["title"], False]
    requests = [{"items": ["i01"], "k": 3, "timeout_ms": 2000, "return_metadata": one} for one in wanted]
    answers = client.post("/recommend/batch", {"requests": requests}).json()["responses"]
    items = [item["item_id"] for item in answers[0]["items"]]
    assert described(answers[0]) == {item: known[item] for item in items}
    assert described(answers[1]) == {item: {"title": known[item]["title"]} if known[item] else {} for item in items}
    assert all("metadata" not in item for item in answers[2]["items"])


def test_a_batch_has_a_limit(client):
    """So many items with metadata in one answer, and those without do not count."""
    full, over = divmod(MAX_BATCH_WITH_METADATA, 500)
    assert over == 0
    requests = [{"items": ["i01"], "k": 500, "timeout_ms": 2000, "return_metadata": ["title"]}] * full
    requests += [{"items": ["i01"], "k": 500, "timeout_ms": 2000}] * 3
    assert client.post("/recommend/batch", {"requests": requests}).status_code == 200
    response = client.post(
        "/recommend/batch", {"requests": [*requests, {"items": [], "k": 1, "return_metadata": True}]}
    )
    assert response.status_code == 422
    assert [(error["pointer"], error["code"]) for error in response.json()["errors"]] == [("/requests", "too_many")]


@pytest.mark.parametrize("absent", [{}, {"return_metadata": False}], ids=["absent", "false"])
def test_plain_answers_are_as_before(client, absent):
    """Byte for byte what the fields of an answer make, without the new one."""
    response = client.post("/recommend", {"items": ["i01"], "k": 5, "timeout_ms": 2000, **absent})
    answer = response.json()
    assert list(answer["items"][0]) == ["item_id", "score", "rank"]
    assert response.content == orjson.dumps(answer)
    assert b"metadata" not in response.content


def test_bytes_go_out_as_they_are(make_client, broken_bundle, known):
    """Of whole metadata nothing is read or written anew: spaces, spellings of numbers and escapes stay."""
    odd = b'{"title":  "\\u00c9", "price": 1.50, "deep": {"a": [1e3, null]}}'
    client = make_client(bundle=broken_bundle(METADATA, b"\n".join([odd] * len(known)) + b"\n"))
    response = client.post("/recommend", {"items": [], "k": 2, "return_metadata": True})
    assert response.content.count(b'"metadata":' + odd) == 2
    [item] = client.recommend(items=[], k=1, return_metadata=["deep", "price"])["items"]
    assert item["metadata"] == {"deep": {"a": [1000.0, None]}, "price": 1.5}


def test_without_metadata_in_the_bundle(make_client, broken_bundle, bundle_path):
    """Each item has an empty object."""
    files = {name: vars(file) for name, file in read_bundle(bundle_path).manifest.files.items() if name != METADATA}
    client = make_client(bundle=broken_bundle("", b"", files=files))
    for wanted in (True, ["title"]):
        assert set(map(str, described(client.recommend(items=["i01"], return_metadata=wanted)).values())) == {"{}"}


def test_it_is_that_of_the_variant_that_answered(make_client, bundle_path, tmp_path, monkeypatch):
    """Champion and candidate each give their own, before a promotion and after it."""
    monkeypatch.setattr(watcher, "probe", lambda *_given, **_named: Verdict(None, ""))
    root = shutil.copytree(bundle_path, tmp_path / "bundles")
    folder = rename_items(bundle_path, root, CANDIDATE, prefix="")
    (folder / METADATA).write_bytes(b'{"title": "new"}\n' * 20)
    seal(folder)
    client = make_client(bundle=root, follow_s=0.05)

    def deploy(change):
        change_deployment(root, change, action="test", by="test", force=True)

    def wait_for(holds):
        deadline = time.monotonic() + 60
        while not holds(model := client.get("/model").json()):
            assert time.monotonic() < deadline, model
            client.run(asyncio.sleep(0.02))

    def titles(**fields):
        answer = client.recommend(items=["i01"], k=3, return_metadata=["title"], **fields)
        return {item["metadata"].get("title", "none") for item in answer["items"]}

    deploy(set_candidate(CANDIDATE, mode="canary", share=0.5))
    wait_for(lambda model: model["candidate"] and model["candidate"]["in_use"])
    assert titles(variant="candidate") == {"new"}
    assert "new" not in titles(variant="champion")
    deploy(promote())
    wait_for(lambda model: model["version"] == CANDIDATE)
    assert titles() == {"new"}
