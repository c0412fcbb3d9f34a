"""POST /similar: by the cosines of rows, or by what comes next; and what is answered where neither can be."""

import asyncio
import json
import shutil
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.harness.bundles import seal
from model.contract.query import Question
from model.contract.sessions import Sessions
from model.contract.similar import SIMILAR, SIMILAR_GOLDEN
from service.errors import ModelRefused
from service.inference.model import load_model

CASES = 1000


@pytest.fixture(scope="module")
def cosines(similar_client):
    """The cosines (V, V) of the rows that the graph gives, and the item ids."""
    model = similar_client.service.model
    rows = model.similar.find_rows(np.arange(1, 21, dtype=np.int32)).astype(np.float64)
    return rows @ rows.T, model.vocabulary.item_ids


def ask(client, **fields):
    """The answer of POST /similar, which must be 200."""
    response = client.post("/similar", {"timeout_ms": 2000, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def names(answer):
    """The item ids of an answer."""
    return [item["item_id"] for item in answer["items"]]


def find_slowly(cosines, asked, *, exclude=(), k=10):
    """Scores by item id, by plain loops: the mean cosine of each other item, best first, equal ones by index."""
    table, ids = cosines
    scores = {}
    for place, item_id in enumerate(ids):
        if item_id not in asked and item_id not in exclude:
            scores[item_id] = sum(table[place][ids.index(one)] for one in asked) / len(asked)
    best = sorted(scores, key=lambda item_id: (-round(scores[item_id], 6), item_id))[:k]
    return {item_id: scores[item_id] for item_id in best}


def draw_asked(draw, ids):
    """One to ten items, some twice, and some that are excluded."""
    asked = [str(item) for item in draw.choice(ids, size=draw.integers(1, 11))]
    return asked, [str(item) for item in draw.choice(ids, size=draw.integers(0, 5))], int(draw.integers(1, 25))


def test_a_thousand_answers_as_plain_loops_find_them(similar_client, cosines):
    """Items, order and scores; the items asked about are not among them. Fifty by HTTP, the rest by the model."""
    draw, model = np.random.default_rng(1), similar_client.service.model
    for number in range(CASES):
        asked, exclude, k = draw_asked(draw, cosines[1])
        expected = find_slowly(cosines, asked, exclude=exclude, k=k)
        if number < 50:
            answer = ask(similar_client, item_ids=asked, exclude_item_ids=exclude, k=k)
            assert (answer["source"], answer["degraded"], answer["requested"]) == ("similar", None, k)
            assert [item["rank"] for item in answer["items"]] == list(range(1, answer["count"] + 1))
            got = {item["item_id"]: item["score"] for item in answer["items"]}
        else:
            encode = model.vocabulary.encode
            question = Question(encode(asked), encode([*exclude, *asked]), None, min(k, 20))
            [found] = model.similar.rank([question])
            got = dict(zip(found.item_ids, found.scores, strict=True))
        assert list(got) == list(expected)
        assert got == pytest.approx(expected, abs=1e-5)


def test_by_next_is_the_model_asked_with_these_items(client, similar_client):
    """In the order given; no bundle needs anything for it."""
    for asked in (["i01"], ["i01", "i02", "i03"], ["i02", "i01"]):
        plain = client.recommend(items=asked, k=5, exclude_item_ids=["i07"])
        for one in (client, similar_client):
            answer = ask(one, item_ids=asked, by="next", k=5, exclude_item_ids=["i07"])
            assert answer["items"] == plain["items"]
            assert (answer["source"], answer["count"], answer["model"]) == ("model", 5, plain["model"])
            assert not {*asked, "i07"} & {*names(answer)}


def test_metadata_comes_as_in_recommendations(similar_client):
    """All, some or none of it."""
    for by in ("taste", "next"):
        [item] = ask(similar_client, item_ids=["i01"], by=by, k=1, return_metadata=["year"])["items"]
        assert item["metadata"] in ({"year": 2003}, {"year": 2000 + len(item["item_id"])}, {})
        whole = ask(similar_client, item_ids=["i01"], by=by, k=20, return_metadata=True)["items"]
        assert {"title": "Title of i02", "year": 2003} in [one["metadata"] for one in whole]
        assert all("metadata" not in one for one in ask(similar_client, item_ids=["i01"], by=by)["items"])


def test_an_item_without_a_row_is_like_none(similar_client):
    """Its cosines are 0, and so the list is that of the ids; and no item is missing."""
    zero = similar_client.service.model.vocabulary.item_ids[0]
    answer = ask(similar_client, item_ids=[zero], k=500)
    assert {item["score"] for item in answer["items"]} == {0.0}
    assert names(answer) == list(similar_client.service.model.vocabulary.item_ids[1:])


@pytest.mark.parametrize("by", ["taste", "next"])
def test_unknown_items_are_not_found(similar_client, by):
    """404, which says where it stands and not what it is."""
    response = similar_client.post("/similar", {"item_ids": ["i01", "c4n4ry"], "by": by})
    assert response.status_code == 404
    assert response.json()["type"] == "urn:nextitem:problem:not-found"
    assert "/item_ids/1" in response.json()["detail"]
    assert "c4n4ry" not in response.text


def test_without_the_graph_it_says_what_to_do(client):
    """422 `not_published`, and `next` is answered all the same."""
    response = client.post("/similar", {"item_ids": ["i01"]})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/by", "not_published")
    assert "--similar" in error["detail"]
    assert ask(client, item_ids=["i01"], by="next")["source"] == "model"


def fail(_names, _feed, *_options):
    """An engine that does not run."""
    raise RuntimeError("injected")


def test_popular_items_where_the_graph_fails(make_client, similar_bundle, monkeypatch):
    """Without the items asked about, and with the reason, which is counted; the network's engine is none the worse."""
    client = make_client(bundle=similar_bundle)
    monkeypatch.setattr(client.service.model.similar.engine, "_session", SimpleNamespace(run=fail))
    answer = ask(client, item_ids=["i01"], k=3)
    assert (answer["source"], answer["degraded"]) == ("popular", "engine_unavailable")
    assert names(answer) == names(client.recommend(items=["i01"], ranker="popular", k=3))
    assert client.recommend(items=["i01"])["source"] == "model"
    assert client.get("/health/ready").json() == {"status": "ok", "reasons": []}
    counts = client.counts()
    assert counts['nextitem_similar_total{result="engine_unavailable"}'] == 1
    assert (
        counts['nextitem_recommendations_total{source="popular",variant="champion",version="20261121T101500-tiny"}']
        == 1
    )


def test_neighbours_where_the_graph_fails_and_there_are_some(make_client, similar_bundle, add_files, monkeypatch):
    """They are like the items, too."""
    sessions = Sessions(
        item_count=20,
        starts=np.array([0, 3]),
        items=np.array([8, 13, 17], dtype=np.int32),
        moments=np.zeros(1, dtype=np.int64),
    )
    client = make_client(bundle=add_files(similar_bundle, {"sessions.npy": sessions.to_bytes()}))
    monkeypatch.setattr(client.service.model.similar.engine, "_session", SimpleNamespace(run=fail))
    answer = ask(client, item_ids=["i02"], k=2)
    assert (answer["source"], names(answer)) == ("neighbours", ["i07", "i11"])


def test_a_slow_graph_makes_no_answer_late(make_client, similar_bundle, monkeypatch):
    """Beyond the deadline popular items are answered; recommendations wait for no more than one such run."""
    client = make_client(bundle=similar_bundle)
    go = threading.Event()
    rank = type(client.service.model.similar).rank

    def rank_slowly(self, questions):
        go.wait(60)
        return rank(self, questions)

    monkeypatch.setattr(type(client.service.model.similar), "rank", rank_slowly)

    async def scenario():
        question = {"item_ids": ["i01"], "timeout_ms": 60}
        late = await asyncio.gather(*(client.http.post("/similar", json=question) for _ in range(5)))
        go.set()
        patient = {"timeout_ms": 2000}
        answered = await client.http.post("/recommend", json={"items": ["i01"], **patient})
        again = await client.http.post("/similar", json={"item_ids": ["i01"], **patient})
        return [answer.json() for answer in late], answered.json(), again.json()

    late, answered, again = client.run(scenario())
    assert {(answer["source"], answer["degraded"]) for answer in late} == {("popular", "deadline")}
    assert (answered["source"], again["source"]) == ("model", "similar")
    counts = client.counts()
    assert counts['nextitem_similar_total{result="deadline"}'] == 5
    assert counts['nextitem_similar_total{result="similar"}'] == 1


def test_a_full_queue_answers_at_once(make_client, similar_bundle, monkeypatch):
    """As for recommendations: popular items, `overloaded`, and the metric of what was shed."""
    client = make_client(bundle=similar_bundle)
    monkeypatch.setattr(client.service.recommender.variants.champion.similar, "max_waiting", 0)
    answer = ask(client, item_ids=["i01"])
    assert (answer["source"], answer["degraded"]) == ("popular", "overloaded")
    assert client.counts()['nextitem_shed_total{reason="queue_full"}'] == 1


def test_many_at_once_share_runs(make_client, similar_bundle, monkeypatch):
    """What waits becomes the next batch, and each gets its own answer."""
    client = make_client(bundle=similar_bundle)
    similar, sizes = type(client.service.model.similar), []
    rank = similar.rank

    def note(self, questions):
        sizes.append(len(questions))
        return rank(self, questions)

    monkeypatch.setattr(similar, "rank", note)
    ids = client.service.model.vocabulary.item_ids
    alone = [names(ask(client, item_ids=[item_id])) for item_id in ids]
    sizes.clear()

    async def ask_all():
        post = client.http.post
        return await asyncio.gather(*(post("/similar", json={"item_ids": [one], "timeout_ms": 2000}) for one in ids))

    assert [names(answer.json()) for answer in client.run(ask_all())] == alone
    assert sum(sizes) == len(ids)
    assert len(sizes) < len(ids)


def test_stages_are_those_of_recommendations_alone(make_client, similar_bundle):
    """The metric of stages counts POST /recommend; that of routes counts this one."""
    client = make_client(bundle=similar_bundle)
    for by in ("taste", "next"):
        ask(client, item_ids=["i01"], by=by)
    counts = client.counts()
    assert counts['nextitem_stage_duration_seconds_count{stage="inference"}'] == 0
    assert counts['nextitem_http_request_duration_seconds_count{code="200",method="POST",route="/similar"}'] == 2


@pytest.fixture
def add_files(tmp_path):
    """Copies of a bundle with files added or changed, and left out where their content is None."""

    def add(source, files):
        folder = shutil.copytree(source, tmp_path / "changed")
        described = json.loads((folder / "manifest.json").read_bytes())["files"]
        for name, content in files.items():
            described.pop(name, None)
            if content is not None:
                (folder / name).write_bytes(content)
                described[name] = {}
        seal(folder, files=described)
        return folder

    return add


def load(folder):
    """Load a bundle on the CPU."""
    return load_model(folder, provider="cpu", threads=1, max_batch=4)


@pytest.mark.parametrize(
    ("files", "code", "why"),
    [
        ({SIMILAR: None}, "format", "without the other"),
        ({SIMILAR_GOLDEN: None}, "format", "without the other"),
        ({SIMILAR_GOLDEN: b"[]"}, "format", "similar_golden.json"),
        ({SIMILAR: b"no graph"}, "engine", "cannot be loaded"),
    ],
    ids=["no graph", "no examples", "empty examples", "damaged graph"],
)
def test_damaged_bundles_are_refused(similar_bundle, add_files, files, code, why):
    """By name, and before they answer anybody."""
    with pytest.raises(ModelRefused, match=why) as refused:
        load(add_files(similar_bundle, files))
    assert refused.value.code == code


def test_a_graph_that_answers_otherwise_is_refused(similar_bundle, add_files):
    """Though it runs: its examples are not its own."""
    golden = (similar_bundle / SIMILAR_GOLDEN).read_bytes().replace(b'"i01"', b'"i0?"').replace(b'"i02"', b'"i01"')
    with pytest.raises(ModelRefused, match="answers otherwise than its trainer") as refused:
        load(add_files(similar_bundle, {SIMILAR_GOLDEN: golden.replace(b'"i0?"', b'"i02"')}))
    assert refused.value.code == "golden"


def test_network_of_the_graph_does_not_serve_as_similar(similar_bundle, add_files):
    """A graph without rows is refused: diversity would have nothing to compare by."""
    network, golden = ((similar_bundle / name).read_bytes() for name in ("network.onnx", "golden.json"))
    with pytest.raises(ModelRefused, match="does not run"):
        load(add_files(similar_bundle, {SIMILAR: network, SIMILAR_GOLDEN: golden}))


def test_the_judge_leaves_it_out(similar_bundle):
    """What only scores events needs no second table in memory."""
    model = load_model(similar_bundle, provider="cpu", threads=1, max_batch=4, similar=False)
    assert model.similar is None
    assert load(similar_bundle).similar is not None
