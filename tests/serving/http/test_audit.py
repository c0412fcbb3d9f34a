"""The audit log: who read or erased whose data, at every log level, without the user's id."""

import json
import logging

import pytest

from service.auth.key_file import create_key, revoke_keys
from service.store.redis_keys import digest_user
from service.telemetry.logs import JsonLines, configure_logs


@pytest.fixture
def lines():
    """The audit log's lines as the service writes them, with the log at its quietest level."""
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            if record.name == "nextitem.audit":
                found.append(JsonLines().format(record))

    root = logging.getLogger()
    before = root.handlers[:], root.level
    configure_logs("error")
    root.addHandler(Keep())
    yield found
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def test_export_and_erasure_leave_a_line_each(make_client, tmp_path, user, lines):
    """User as a digest, key, request id, and whether it was done; other requests leave none."""
    file = tmp_path / "keys.json"
    key = create_key(file, ["admin", "events"])
    client = make_client(keys_file=file)
    headers = {"authorization": f"Bearer {key}", "x-request-id": "import-7"}
    client.post("/events", {"user_id": user, "item_id": "i01"}, headers=headers)
    client.get(f"/users/{user}/history", headers=headers)
    client.request("DELETE", f"/users/{user}", headers=headers)
    entries = [json.loads(line) for line in lines]
    assert [(entry["message"], entry["key"], entry["request_id"], entry["user"]) for entry in entries] == [
        ("Audit: export of a user's data done", key.split("_")[1], "import-7", digest_user(user)),
        ("Audit: erasure of a user's data done", key.split("_")[1], "import-7", digest_user(user)),
    ]
    assert user not in "".join(lines)


def test_a_list_of_users_leaves_a_line(make_client, tmp_path, user, lines):
    """Who saw how many ids of users; not which."""
    file = tmp_path / "keys.json"
    key = create_key(file, ["admin", "events"])
    client = make_client(keys_file=file)
    headers = {"authorization": f"Bearer {key}", "x-request-id": "look-1"}
    client.post("/events", {"user_id": user, "item_id": "i01"}, headers=headers)
    shown = client.get("/users?recent=3", headers=headers).json()["count"]
    [entry] = map(json.loads, lines)
    assert (entry["message"], entry["users"], entry["key"], entry["request_id"]) == (
        "Audit: users listed",
        shown,
        key.split("_")[1],
        "look-1",
    )
    assert user not in "".join(lines)


def test_what_failed_is_said_to_have_failed(make_client, tmp_path, user, lines):
    """Without a store nothing is exported; without keys there is no key to name."""
    client = make_client(redis_url=f"unix://{tmp_path}/nobody")
    assert client.get(f"/users/{user}/history").status_code == 503
    [entry] = map(json.loads, lines)
    assert (entry["message"], entry["key"]) == ("Audit: export of a user's data failed", None)


def test_changed_keys_leave_a_line(make_client, tmp_path, lines, monkeypatch):
    """Which keys a running service lets in anew, and which no more."""
    monkeypatch.setattr("service.auth.guard.RELOAD_S", 0.0)
    file = tmp_path / "keys.json"
    first = create_key(file, ["metrics"]).split("_")[1]
    client = make_client(keys_file=file)
    second = create_key(file, ["metrics"])
    assert client.get("/metrics", headers={"authorization": f"Bearer {second}"}).status_code == 200
    revoke_keys(file, [first])
    client.get("/metrics")
    assert [(entry["added"], entry["removed"]) for entry in map(json.loads, lines)] == [
        ([second.split("_")[1]], []),
        ([], [first]),
    ]
