"""Keys: every route with every kind of key, what the file of keys goes through, and who may listen where."""

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from model.contract.deployment.changes import ACTIONS
from service.app import ROUTERS
from service.auth import guard
from service.auth.guard import GuardedRoute, requires_scope
from service.auth.key_file import SCOPES, Scope, create_key, read_keys, revoke_keys
from service.cli import main
from service.errors import KeysUnusable

CONTRACT: dict[tuple[str, str], Scope | None] = {
    ("POST", "/recommend"): "recommend",
    ("POST", "/recommend/batch"): "recommend",
    ("POST", "/similar"): "recommend",
    ("POST", "/events"): "events",
    ("GET", "/users"): "admin",
    ("GET", "/users/{user_id}/history"): "admin",
    ("DELETE", "/users/{user_id}"): "admin",
    ("GET", "/items"): "recommend",
    ("GET", "/items/{item_id}"): "recommend",
    **{(method, "/items/{item_id}"): "catalogue" for method in ("PUT", "PATCH", "DELETE")},
    ("POST", "/items"): "catalogue",
    ("GET", "/model"): "recommend",
    ("GET", "/models"): "models",
    ("GET", "/models/trial"): "models",
    **{("POST", f"/models/{action}"): "models" for action in ("refresh", *sorted(ACTIONS - {"terms"}))},
    ("GET", "/metrics"): "metrics",
    ("GET", "/status"): "metrics",
    ("GET", "/health/live"): None,
    ("GET", "/health/ready"): None,
}
ROUTES: list[tuple[str, Any]] = [  # of the routes' own kind, as a test finds out
    (method, route) for router in ROUTERS for route in router.routes for method in sorted(vars(route)["methods"])
]
FILLED = {"{user_id:text}": "u", "{item_id:text}": "i01"}


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory):
    """A file of keys."""
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def keys(keys_file):
    """A key for each scope alone, and one that was revoked."""
    made: dict[str, str] = {scope: create_key(keys_file, [scope]) for scope in SCOPES}
    made["revoked"] = create_key(keys_file, SCOPES)
    revoke_keys(keys_file, [made["revoked"].split("_")[1]])
    return made


@pytest.fixture
def guarded(make_client, keys, keys_file):  # noqa: ARG001 - the file must hold the keys
    """A service with that file of keys."""
    return make_client(keys_file=keys_file)


def check_refused(response, status, slug):
    """That problem, without a word of the key."""
    assert (response.status_code, response.json()["type"]) == (status, f"urn:nextitem:problem:{slug}")
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.headers.get("www-authenticate") == "Bearer") == (status == 401)
    assert "nk_" not in response.text.replace("nk_<id>_<secret>", "")


def ask(client, method, route, *authorizations):
    """A request that is right but for its key; what would change who or what is recommended is not."""
    path = route.path
    if (method, CONTRACT[method, route.path_format]) == ("DELETE", "catalogue"):
        path = path.replace("{item_id:text}", "nobody")
    for name, value in FILLED.items():
        path = path.replace(name, value)
    path = f"{path}?query=i01" if (method, path) == ("GET", "/items") else path
    headers = [("authorization", value) for value in authorizations]
    question = {"items": ["i01"]}
    documents = {"/recommend": question, "/recommend/batch": {"requests": [question]}}
    documents["/similar"] = {"item_ids": ["i01"], "by": "next"}
    document = (documents | {"/events": {"user_id": "u", "item_id": "i01"}}).get(path)
    return client.request(method, path, headers=headers, **({"json": document} if document else {}))


def test_every_route_has_the_scope_of_the_contract():
    """No route more and none less; each of its own kind, so that its scope is looked at."""
    assert all(isinstance(route, GuardedRoute) for _, route in ROUTES)
    stated = {(method, route.path_format): route.openapi_extra["security"] for method, route in ROUTES}
    assert stated == {route: requires_scope(scope)["security"] for route, scope in CONTRACT.items()}


@pytest.mark.parametrize(("method", "route"), ROUTES, ids=lambda part: getattr(part, "path", part))
def test_every_route_with_every_kind_of_key(guarded, keys, method, route):
    """None, malformed, revoked and another scope are refused; the right one and no other opens; health is for all."""
    scope = CONTRACT[method, route.path_format]
    right = f"Bearer {keys[scope or 'admin']}"
    if scope is None:
        assert ask(guarded, method, route).status_code == 200
        return
    key_id, secret = keys[scope].split("_", 2)[1:]
    for wrong in (
        (),
        ("",),
        ("Bearer",),
        ("Bearer ",),
        (keys[scope],),
        (f"Basic {keys[scope]}",),
        (f"Token {keys[scope]}",),
        (f"Bearer {keys[scope][:-1]}",),
        (f"Bearer {keys[scope]}x",),
        (f"Bearer nk_{key_id}_{'A' * len(secret)}",),
        (f"Bearer nk_000000000000_{secret}",),
        (f"Bearer NK_{key_id}_{secret}",),
        (f"Bearer nk_{key_id}_{secret[:20]} {secret[20:]}",),
        (f"Bearer nk_{key_id}_",),
        (f"Bearer nk_{key_id}_{'x' * 10_000}",),
        (f"Bearer {keys['revoked']}",),
        (right, right),
        (right, f"Bearer {keys['revoked']}"),
    ):
        check_refused(ask(guarded, method, route, *wrong), 401, "unauthorized")
    for other in set(SCOPES) - {scope}:
        check_refused(ask(guarded, method, route, f"Bearer {keys[other]}"), 403, "forbidden")
    for opens in (right, right.replace("Bearer", "bearer")):
        answer = ask(guarded, method, route, opens)
        # Without a body nobody changes a deployment or an item: its problem shows that the key was let in.
        changes = scope in ("models", "catalogue") and method != "GET" and route.path != "/models/refresh"
        assert answer.status_code == (404 if method == "DELETE" else 415) if changes else answer.is_success


def test_a_key_may_open_several_scopes(guarded, keys_file, monkeypatch):
    """Scopes add up, and a new key is known at once where the file is looked at anew."""
    monkeypatch.setattr(guard, "RELOAD_S", 0)
    key = create_key(keys_file, ["events", "recommend"])
    statuses = {
        CONTRACT[method, route.path_format]: ask(guarded, method, route, f"Bearer {key}").status_code
        for method, route in ROUTES
    }
    assert statuses == {
        "recommend": 200,
        "events": 200,
        "catalogue": 403,
        "admin": 403,
        "models": 403,
        "metrics": 403,
        None: 200,
    }


def test_routes_that_state_nothing_cannot_be_made():
    """Deny by default: whoever forgets the scope of a new route finds out at once."""
    with pytest.raises(TypeError, match="state what it requires"):
        GuardedRoute("/new", lambda: None)


@pytest.mark.parametrize("path", ["http://service//metrics", "/metrics/", "/Metrics", "/%2e/metrics", "/%6Detrics"])
def test_other_spellings_open_nothing(guarded, path):
    """A path that only looks like a route is none."""
    check_refused(guarded.get(path), 404, "not-found")


def test_bodies_are_not_read_for_strangers(guarded):
    """Whatever is sent, the key comes first."""
    check_refused(guarded.post("/events", content=b"[" * 3_000_000), 401, "unauthorized")


def test_the_file_is_read_anew_when_it_changes(make_client, tmp_path, monkeypatch, caplog):
    """A revoked key is refused, a new one let in; a broken or missing file lets nobody in and says so once."""
    monkeypatch.setattr(guard, "RELOAD_S", 0)
    file = tmp_path / "keys.json"
    first, second = create_key(file, ["metrics"]), create_key(file, ["metrics"])
    client = make_client(keys_file=file)

    def status(key):
        return client.get("/metrics", headers={"authorization": f"Bearer {key}"}).status_code

    assert [status(first), status(second)] == [200, 200]
    revoke_keys(file, [first.split("_")[1]])
    assert [status(first), status(second)] == [401, 200]
    third = create_key(file, ["metrics"])
    assert [status(second), status(third)] == [200, 200]
    whole = file.read_bytes()
    for broken in (b"", b"c4n4ry", whole[:-9], None):
        caplog.clear()
        file.write_bytes(broken) if broken is not None else file.unlink()
        assert [status(second), status(third)] == [401, 401]
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "c4n4ry" not in str(caplog.records[0].fields)
        file.write_bytes(whole)
        assert [status(second), status(third)] == [200, 200]


def test_a_file_is_noticed_when_it_is_mended_however(make_client, tmp_path, monkeypatch, caplog):
    """Made readable again, which changes neither its content nor its time, or readable by itself after a failure."""
    monkeypatch.setattr(guard, "RELOAD_S", 0)
    file = tmp_path / "keys.json"
    key = create_key(file, ["metrics"])
    client = make_client(keys_file=file)
    fails_with: list[str] = []

    def read_or_fail(path):
        if fails_with:
            raise KeysUnusable(fails_with[0])
        return read_keys(path)

    def status():
        return client.get("/metrics", headers={"authorization": f"Bearer {key}"}).status_code

    monkeypatch.setattr(guard, "read_keys", read_or_fail)
    assert status() == 200
    create_key(file, ["metrics"])
    assert status() == 200
    assert "API keys changed" in caplog.text
    for why in ("cannot be read: Permission denied", "cannot be read: Too many open files"):
        caplog.clear()
        fails_with[:] = [why]
        file.chmod(0o600)  # a change of nothing but its ctime
        assert [status(), status()] == [401, 401]
        assert [record.fields["why"] for record in caplog.records] == [why]
        fails_with.clear()
        assert status() == 200
        assert "API keys changed" not in caplog.text  # the same as before it could not be read


def test_a_service_starts_with_a_file_that_is_broken_by_then(make_client, tmp_path, monkeypatch):
    """As a worker that replaces another: nobody is let in until the file is mended."""
    monkeypatch.setattr(guard, "RELOAD_S", 0)
    file = tmp_path / "keys.json"
    key = create_key(file, ["metrics"])
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    client = make_client(keys_file=file)
    headers = {"authorization": f"Bearer {key}"}
    assert client.get("/metrics", headers=headers).status_code == 401
    file.write_bytes(whole)
    assert client.get("/metrics", headers=headers).status_code == 200


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
    """Who opens a pipe waits for a writer, and the event loop with it; a device may never end."""
    file = Path("/dev/zero") if kind == "device" else tmp_path / "keys.json"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    began_s = time.monotonic()
    with pytest.raises(KeysUnusable, match="cannot be read"):
        read_keys(file)
    assert time.monotonic() - began_s < 10


def test_the_file_is_looked_at_once_a_second(guarded, keys, monkeypatch):
    """Not for each request."""
    looks: list[Path] = []
    monkeypatch.setattr(guard, "stat_fingerprint", looks.append)
    monkeypatch.setattr(guard, "RELOAD_S", 3600)
    for _ in range(5):
        guarded.get("/metrics", headers={"authorization": f"Bearer {keys['metrics']}"})
    assert looks == []


def test_the_file_holds_no_secret_and_is_private(tmp_path):
    """Mode 0600 whatever the umask, and digests only; a mode that was set stays."""
    file = tmp_path / "keys.json"
    before = os.umask(0)
    try:
        key = create_key(file, ["events"], note="the shop")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key.split("_", 2)[2] not in file.read_text()
    [kept] = read_keys(file)
    assert (kept.id, kept.scopes, kept.note) == (key.split("_")[1], ("events",), "the shop")
    file.chmod(0o640)
    create_key(file, ["events"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_changes_at_one_time_are_all_kept(tmp_path):
    """The file is locked while it is changed."""
    file = tmp_path / "keys.json"
    threads = [threading.Thread(target=create_key, args=(file, ["events"])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_keys(file)) == 20


KEY = {"id": "a", "sha256": "0" * 64, "scopes": ["events"], "created": "c", "note": ""}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"format": 2, "keys": []},
        {"format": 1},
        {"format": 1, "keys": {}},
        {"format": 1, "keys": [], "more": 1},
        {"format": 1, "keys": [KEY | {"scopes": []}]},
        {"format": 1, "keys": [KEY | {"scopes": ["all"]}]},
        {"format": 1, "keys": [KEY | {"scopes": [["events"]]}]},
        {"format": 1, "keys": [KEY | {"scopes": "events"}]},
        {"format": 1, "keys": [KEY | {"sha256": "0" * 63}]},
        {"format": 1, "keys": [KEY | {"sha256": None}]},
        {"format": 1, "keys": [KEY | {"id": ""}]},
        {"format": 1, "keys": [KEY | {"expires": "never"}]},
        {"format": 1, "keys": [{name: value for name, value in KEY.items() if name != "note"}]},
        {"format": 1, "keys": [KEY, KEY]},
    ],
)
def test_files_that_are_none(tmp_path, document):
    """A field that this version does not know might limit a key: refused like anything else."""
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(document))
    with pytest.raises(KeysUnusable, match=r"keys\.json"):
        read_keys(file)
    with pytest.raises(KeysUnusable):
        create_key(file, ["events"])
    assert json.loads(file.read_text()) == document


def test_order_of_the_fields_is_free(tmp_path):
    """JSON has none."""
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [dict(reversed(KEY.items()))], "format": 1}))
    assert read_keys(file)[0].scopes == ("events",)


def test_commands(tmp_path, capsys, monkeypatch):
    """Create prints the key alone, once; list shows no secret; revoke takes ids; what is wrong is one sentence."""
    file = tmp_path / "keys.json"
    monkeypatch.setenv("NEXTITEM_KEYS_FILE", str(file))
    assert main(["keys", "create", "--scopes", "recommend,events", "--note", "the shop"]) == 0
    key = capsys.readouterr().out.strip()
    key_id, secret = key.split("_", 2)[1:]
    assert main(["keys", "list", "--keys-file", str(file)]) == 0
    listed = capsys.readouterr().out
    assert key_id in listed
    assert "recommend,events  the shop" in listed
    assert secret not in listed + file.read_text()
    assert main(["keys", "revoke", "c4n4ry", key_id]) == 1
    assert "nothing was revoked" in capsys.readouterr().err
    assert main(["keys", "revoke", key_id]) == 0
    assert read_keys(file) == ()
    assert main(["keys", "list", "--keys-file", str(tmp_path / "none")]) == 1
    assert "none does not exist: create it with `nextitem-serve keys create`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["make"],
        ["create"],
        ["create", "--scopes", "all"],
        ["create", "--scopes", ""],
        ["create", "--scopes", "events,"],
        ["create", "--scopes", "events", "--note", "two\nlines"],
        ["create", "--scopes", "events", "--note", "x" * 201],
        ["revoke"],
    ],
)
def test_wrong_calls(tmp_path, monkeypatch, arguments):
    """Status 2, and no file."""
    monkeypatch.setenv("NEXTITEM_KEYS_FILE", str(tmp_path / "keys.json"))
    with pytest.raises(SystemExit) as ended:
        main(["keys", *arguments])
    assert ended.value.code == 2
    assert list(tmp_path.iterdir()) == []


def test_workers_take_a_revocation_within_seconds(start_process, tmp_path):
    """Every worker of a running service refuses the key, and none needs a restart; the log holds no key."""
    import httpx  # noqa: PLC0415 - one use

    file = tmp_path / "keys.json"
    kept, lost = create_key(file, ["recommend"]), create_key(file, ["recommend"])
    process = start_process("--workers", "2", "--host", "0.0.0.0", "--keys-file", str(file))  # noqa: S104 - the point
    url = process.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104

    def ask_all(key):
        """The answers over 20 connections, which reach both workers."""
        headers = {"authorization": f"Bearer {key}"}
        return {httpx.get(f"{url}/model", headers=headers).status_code for _ in range(20)}

    assert (ask_all(kept), ask_all(lost)) == ({200}, {200})
    assert process.started.endswith(f"keys: {file}")
    for path in ("/docs", "/openapi.json"):
        assert httpx.get(url + path).status_code == 404
    revoke_keys(file, [lost.split("_")[1]])
    time.sleep(guard.RELOAD_S)
    assert (ask_all(kept), ask_all(lost)) == ({200}, {401})
    process.close()
    assert "nk_" not in str(process.log)
    assert "error" not in {entry["level"] for entry in process.log}


def test_what_others_may_see_is_said_at_the_start(start_process, tmp_path):
    """A file of keys that every user may read, and a password in the command line; not without either."""
    file = tmp_path / "keys.json"
    create_key(file, ["recommend"])
    warnings = {}
    for mode in (0o644, 0o640):
        file.chmod(mode)
        url = "redis://admin:c4n4ry@127.0.0.1:1/0" if mode == 0o644 else "redis://127.0.0.1:1/0"
        process = start_process("--keys-file", str(file), "--redis-url", url)
        process.close()
        warnings[mode] = [entry["message"] for entry in process.log if entry["level"] == "warning"]
        assert "c4n4ry" not in str(process.log)
    assert [line.split(",")[0] for line in warnings[0o644][:2]] == [
        "The store's password is on the command line",
        f"Every user of this machine may read or write the API key file: run chmod o-rw {file}",
    ]
    assert not any("password" in line or "chmod" in line for line in warnings[0o640])


def test_docs_elsewhere_are_asked_for(make_client, keys_file, keys):  # noqa: ARG001
    """On this machine, or with --docs; they name the scheme and the scope of every route."""
    elsewhere = {"host": "192.0.2.1", "keys_file": keys_file}
    assert make_client(**elsewhere).get("/docs").status_code == 404
    client = make_client(**elsewhere, docs=True)
    assert client.get("/docs").status_code == 200
    document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for (method, path), scope in CONTRACT.items():
        operation = document["paths"][path][method.lower()]
        assert operation["security"] == requires_scope(scope)["security"]
        assert ({"401", "403"} <= operation["responses"].keys()) == (scope is not None)


def test_framework_routes_hold_no_secrets(make_client):
    """What FastAPI adds by itself is the OpenAPI document."""
    added = [route for route in make_client().app.framework.routes if not isinstance(route, APIRoute)]
    assert {route.path for route in added if getattr(route, "path", None)} == {"/openapi.json"}
