"""/models: what answers, changed over HTTP as by the command, and refused where it may not be."""

import errno
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks.harness.plain_versions import write_version
from model.contract.bundle import MANIFEST
from model.contract.deployment.document import DEPLOYMENT, read_deployment
from model.contract.deployment.journal import JOURNAL, read_journal, verify_journal
from model.contract.deployment.writer import hold_deployment
from service.auth.key_file import create_key
from service.http.routes import models

TINY = "20261121T101500-tiny"
PROBLEM = "urn:nextitem:problem:"


@pytest.fixture
def root(bundle_path, tmp_path):
    """A copy of the bundle folder, with a second version of the same content."""
    folder = shutil.copytree(bundle_path, tmp_path / "bundles")
    shutil.copytree(folder / TINY, folder / "second")
    write_version(folder, "other", ("x", "y", "z"))
    return folder


@pytest.fixture
def served(make_client, root):
    """A service of that folder."""
    return make_client(bundle=root)


def change(client, action, document=None, **options):
    """One change: its status, and its answer or its problem."""
    response = client.post(f"/models/{action}", document if document is not None else {}, **options)
    return response.status_code, response.json()


def test_a_model_lives_over_http(served, root):
    """Each change gives the deployment that stands then, and the journal has all of them."""
    status, listed = served.get("/models").status_code, served.get("/models").json()
    assert (status, listed["deployment"]["generation"], listed["deployment"]["champion"]) == (200, 0, TINY)
    assert {one["version"]: one["role"] for one in listed["versions"]} == {
        TINY: "champion",
        "second": None,
        "other": None,
    }
    done: list[tuple[str, dict[str, object], dict[str, object]]] = [
        ("candidate", {"version": "second"}, {"candidate": "second", "mode": "shadow", "share": 0.0}),
        ("share", {"share": 0.05}, {"mode": "canary", "share": 0.05}),
        ("return", {"why": "slow"}, {"candidate": None, "mode": "off"}),
        ("candidate", {"version": "second", "mode": "canary", "share": 1}, {"mode": "canary", "share": 1.0}),
        ("promote", {"if_generation": 4}, {"champion": "second", "previous": TINY, "candidate": None}),
        ("rollback", {}, {"champion": TINY, "judged": False}),
        ("resume", {}, {"judged": True}),
        ("hold", {}, {"judged": False}),
        ("use", {"version": "second"}, {"champion": "second"}),
    ]
    for number, (action, document, expected) in enumerate(done, start=1):
        status, answer = change(served, action, document)
        assert status == 200, answer
        assert answer["generation"] == number
        assert {name: answer[name] for name in expected} == expected
    assert read_deployment(root).champion == "second"
    assert verify_journal(root) is None
    entries = list(read_journal(root))
    assert [entry["by"] for entry in entries] == ["http"] * 9
    assert entries[2]["why"] == "slow"
    assert served.get("/models").json()["deployment"]["generation"] == 9


@pytest.mark.parametrize(
    ("action", "document", "expected"),
    [
        ("use", {"version": "c4n4ry"}, (404, "not-found", "no such version")),
        ("use", {"version": TINY}, (409, "deployment-refused", "champion already")),
        ("use", {"version": "other"}, (409, "deployment-refused", "knows the items of only")),
        ("candidate", {"version": TINY}, (409, "deployment-refused", "its own candidate")),
        ("share", {"share": 0.5}, (409, "deployment-refused", "no candidate")),
        ("promote", {}, (409, "deployment-refused", "no candidate")),
        ("rollback", {}, (409, "deployment-refused", "no earlier champion")),
        ("hold", {"if_generation": 7}, (409, "generation-conflict", "Somebody else")),
        ("use", {}, (422, "validation", "")),
        ("use", {"version": "../c4n4ry"}, (422, "validation", "")),
        ("use", {"version": ".c4n4ry"}, (422, "validation", "")),
        ("use", {"version": "v" * 65}, (422, "validation", "")),
        ("promote", {"version": "second"}, (422, "validation", "")),
        ("share", {"share": 1.5}, (422, "validation", "")),
        ("share", {"share": True}, (422, "validation", "")),
        ("candidate", {"version": "second", "mode": "c4n4ry"}, (422, "validation", "")),
        ("candidate", {"version": "second", "mode": "canary"}, (422, "validation", "")),
        ("candidate", {"version": "second", "share": 0.5}, (422, "validation", "")),
        ("hold", {"why": "x" * 201}, (422, "validation", "")),
        ("hold", {"if_generation": -1}, (422, "validation", "")),
        ("hold", {"why": "x" * 5000}, (413, "body-too-large", "")),
        ("terms", {}, (404, "not-found", "")),
    ],
)
def test_what_is_refused_changes_nothing(served, root, action, document, expected):
    """A problem says why, and repeats nothing."""
    status, slug, said = expected
    got, problem = change(served, action, document)
    assert (got, problem["type"]) == (status, PROBLEM + slug)
    assert said in problem["detail"]
    assert "c4n4ry" not in str(problem)
    assert str(root) not in str(problem)
    assert not (root / DEPLOYMENT).exists()
    assert not (root / JOURNAL).exists()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written(served, root, monkeypatch, code):
    """As in docker compose: the problem names the command; a full disk is another problem."""

    def refuse(*_arguments, **_options):
        raise OSError(code, "no", str(root))

    monkeypatch.setattr(models, "change_deployment", refuse)
    status, problem = change(served, "hold")
    assert (status, problem["type"]) == (409, f"{PROBLEM}read-only")
    assert "nextitem-serve models" in problem["detail"]
    code = errno.ENOSPC
    status, problem = change(served, "hold")
    assert (status, problem["type"]) == (409, f"{PROBLEM}deployment-refused")
    assert str(root) not in str(problem)


def test_a_malformed_deployment_is_told(served, root):
    """Nothing is listed or changed until it is mended, and recommendations go on."""
    (root / DEPLOYMENT).write_text("{")
    assert served.get("/models").status_code == 409
    status, problem = change(served, "hold")
    assert (status, "models status" in problem["detail"]) == (409, True)
    assert (root / DEPLOYMENT).read_text() == "{"
    assert served.recommend(items=["i01"], k=1)["count"] == 1


def test_a_damaged_version_is_refused(served, root):
    """Its manifest cannot be read."""
    (root / "second" / MANIFEST).write_text("{}")
    status, problem = change(served, "use", {"version": "second"})
    assert (status, "cannot be read as a bundle" in problem["detail"]) == (409, True)
    [second] = [one for one in served.get("/models").json()["versions"] if one["version"] == "second"]
    assert second == {"version": "second", "role": None, "trained_at": None, "item_count": None, "metrics": None}


def test_somebody_else_is_changing_it(served, root, monkeypatch):
    """While another process holds the lock, a change waits, then is a conflict."""
    monkeypatch.setattr("model.contract.deployment.writer.LOCK_PATIENCE_S", 0.1)
    with hold_deployment(root):
        status, problem = change(served, "hold")
    assert (status, problem["type"]) == (409, f"{PROBLEM}generation-conflict")
    assert change(served, "hold")[0] == 200


def test_a_single_bundle_has_no_deployment(make_client, root):
    """Neither is listed nor changed."""
    client = make_client(bundle=root / TINY)
    assert client.get("/models").status_code == 404
    assert change(client, "hold")[0] == 404
    assert client.post("/models/refresh").status_code == 404


def test_workers_are_told_to_look(served):
    """After each change, and when asked; a refused change tells nobody."""
    told = []
    service = replace(served.service, watcher=SimpleNamespace(refresh=lambda: told.append(1)))
    served.app.service = service
    assert served.post("/models/refresh").json() == {"status": "asked"}
    assert served.post("/models/refresh?now=1").status_code == 422
    assert change(served, "promote")[0] == 409
    assert len(told) == 1
    assert change(served, "hold")[0] == 200
    assert len(told) == 2


def test_the_journal_names_the_key(make_client, root, tmp_path):
    """The key's id, never its secret. A key for users' data opens none of it."""
    keys = tmp_path / "keys.json"
    key, admin = create_key(keys, ["models"]), create_key(keys, ["admin"])
    client = make_client(bundle=root, keys_file=keys)
    assert change(client, "hold", headers={"authorization": f"Bearer {admin}"})[0] == 403
    assert change(client, "hold", headers={"authorization": f"Bearer {key}"})[0] == 200
    [entry] = read_journal(root)
    assert entry["by"] == f"key:{key.split('_')[1]}"
