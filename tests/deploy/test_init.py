"""What init prepares: passwords made once, readable by whom they are for; owners; and it needs no power but CHOWN."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from service.auth.key_file import create_key, read_keys, split_key
from service.store.connection import PasswordFile

REPOSITORY = Path(__file__).parents[2]
USERS = REPOSITORY / "deploy" / "valkey" / "users.acl"
SCRIPT = REPOSITORY / "deploy" / "init" / "prepare.py"


class Owners:
    """Notes who was given what, so that no test needs to be root."""

    def __init__(self) -> None:
        self.given: dict[Path, tuple[int, int]] = {}

    def chown(self, path: Path, user: int, group: int) -> None:
        assert path.exists()
        self.given[path] = (user, group)


@pytest.fixture
def volumes(tmp_path: Path, prepare: Any) -> Path:
    """Empty volumes, as Docker makes them."""
    for name in (*prepare.OWNERS, prepare.SECRETS):
        (tmp_path / name).mkdir(mode=0o755)
    return tmp_path


def test_passwords_are_long_different_and_kept(volumes: Path, prepare: Any) -> None:
    """The first run makes all, the second keeps them, and one that was removed is made anew."""
    assert prepare.prepare(volumes, USERS.read_text(), Owners().chown) == [
        "service/valkey-password",
        "archiver/valkey-password",
        "judge/valkey-password",
        "valkey/operator-password",
        "grafana/admin-password",
        "client/key",
        "traffic/key",
        "prometheus/key",
        "day-two/key",
    ]
    files = [volumes / prepare.SECRETS / name for name in prepare.PASSWORDS]
    first = [file.read_text() for file in files]
    assert len(set(first)) == 5
    assert all(len(password) >= 40 and password.strip() == password for password in first)
    assert prepare.prepare(volumes, USERS.read_text(), Owners().chown) == []
    assert [file.read_text() for file in files] == first
    files[4].unlink()
    assert prepare.prepare(volumes, USERS.read_text(), Owners().chown) == ["grafana/admin-password"]
    assert [file.read_text() for file in files[:4]] == first[:4]
    assert files[4].read_text() != first[4]


def test_secrets_are_for_one_group_each(volumes: Path, prepare: Any) -> None:
    """Files and their folders are root's, readable by the group of the one service that needs them, and by no other."""
    owners = Owners()
    prepare.prepare(volumes, USERS.read_text(), owners.chown)
    for name, who in (
        (prepare.SERVICE_PASSWORD, "service"),
        (prepare.ARCHIVER_PASSWORD, "archiver"),
        (prepare.JUDGE_PASSWORD, "judge"),
        (prepare.OPERATOR_PASSWORD, "valkey"),
        (prepare.GRAFANA_PASSWORD, "grafana"),
        (prepare.USERS, "valkey"),
        (prepare.KEYS_FILE, "service"),
        (Path("traffic/key"), "traffic"),
        (Path("prometheus/key"), "prometheus"),
        (Path("day-two/key"), "day-two"),
    ):
        file = volumes / prepare.SECRETS / name
        assert stat.S_IMODE(file.stat().st_mode) == 0o440
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o750
        assert owners.given[file.parent] == (-1, prepare.IDS[who])
        draft = file.with_suffix(".new")  # given away before it gets its name
        assert not draft.exists()


def test_every_volume_is_given_to_its_service(volumes: Path, prepare: Any) -> None:
    """Data volumes belong to the user who writes them; the secrets stay root's."""
    owners = Owners()
    prepare.prepare(volumes, USERS.read_text(), owners.chown)
    given = {path.name: ids for path, ids in owners.given.items() if path.parent == volumes}
    assert given == {volume: (prepare.IDS[owner],) * 2 for volume, owner in prepare.OWNERS.items()}


def test_users_follow_password_and_template(volumes: Path, prepare: Any) -> None:
    """The store's users hold the passwords' digests, never a password, no comment, and what the template says now."""
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    users = (volumes / prepare.SECRETS / prepare.USERS).read_text()
    users_and_files = {
        "service": prepare.SERVICE_PASSWORD,
        "archiver": prepare.ARCHIVER_PASSWORD,
        "judge": prepare.JUDGE_PASSWORD,
        "operator": prepare.OPERATOR_PASSWORD,
    }
    for user, name in users_and_files.items():
        password = (volumes / prepare.SECRETS / name).read_text()
        assert f"user {user} on #{hashlib.sha256(password.encode()).hexdigest()} " in users
        assert password not in users
    assert all(line.startswith("user ") for line in users.splitlines())
    prepare.prepare(volumes, USERS.read_text() + "user other off\n", Owners().chown)
    assert (volumes / prepare.SECRETS / prepare.USERS).read_text() == users + "user other off\n"


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_password_of_one_s_own_opens_as_the_service_reads_it(volumes: Path, prepare: Any, end: str) -> None:
    """A file written by `echo` or an editor: the digest is of what the service sends, without the end of line."""
    file = volumes / prepare.SECRETS / prepare.SERVICE_PASSWORD
    file.parent.mkdir()
    file.write_bytes(f"pässword of one's own{end}".encode())
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    sent = str(PasswordFile("service", file).get_credentials()[-1])
    assert sent == "pässword of one's own"
    users = (volumes / prepare.SECRETS / prepare.USERS).read_text()
    assert f"user service on #{hashlib.sha256(sent.encode()).hexdigest()} " in users


@pytest.mark.parametrize("content", ["", "\n", "two\nlines\n"])
@pytest.mark.parametrize(
    "name",
    [
        "service/valkey-password",
        "archiver/valkey-password",
        "judge/valkey-password",
        "valkey/operator-password",
        "grafana/admin-password",
    ],
)
def test_file_without_a_password_is_refused_by_name(volumes: Path, name: str, content: str) -> None:
    """One sentence says which file, and what to do; no user without a password comes of it."""
    file = volumes / "secrets" / name
    file.parent.mkdir()
    file.write_text(content)
    ended = subprocess.run(
        [sys.executable, "-I", str(SCRIPT), str(volumes), str(USERS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1
    assert ended.stderr == f"{file} must hold one line, the secret; remove it, and init makes one\n"
    assert not (volumes / "secrets" / "valkey" / "users.acl").exists()


def test_keys_open_what_they_are_for(volumes: Path, prepare: Any) -> None:
    """The service reads init's file: each key with its scopes; the person's is root's alone to read."""
    owners = Owners()
    prepare.prepare(volumes, USERS.read_text(), owners.chown)
    secrets = volumes / prepare.SECRETS
    known = {(key.id, key.sha256): key.scopes for key in read_keys(secrets / prepare.KEYS_FILE)}
    assert known == {split_key((secrets / name).read_text()): tuple(scopes) for name, scopes in prepare.KEYS.items()}
    assert None not in known
    assert not any((secrets / name).read_text() in (secrets / prepare.KEYS_FILE).read_text() for name in prepare.KEYS)
    assert [owners.given.get(path, (-1, 0)) for path in (secrets / "client", secrets / "client" / "key.new")] == [
        (-1, 0),
        (-1, 0),
    ]


def test_keys_of_others_are_kept_and_removed_ones_replaced(volumes: Path, prepare: Any) -> None:
    """A second run changes nothing; a key that somebody added stays; one that was removed is made anew."""
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    file = volumes / prepare.SECRETS / prepare.KEYS_FILE
    first = file.read_bytes()
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    assert file.read_bytes() == first
    added = split_key(create_key(file, ["events"], note="the shop"))
    (volumes / prepare.SECRETS / "traffic" / "key").unlink()
    before = {key.note: key.sha256 for key in read_keys(file)}
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    after = {key.note: key.sha256 for key in read_keys(file)}
    assert added is not None
    assert after["the shop"] == added[1]
    assert {note for note in after if after[note] != before[note]} == {"init: traffic"}
    assert len(after) == len(prepare.KEYS) + 1
    for broken in ("{", "[]", '{"keys": [1]}'):
        file.chmod(0o600)
        file.write_text(broken)
        with pytest.raises(ValueError, match="is no file of keys; remove it, and init makes one"):
            prepare.prepare(volumes, USERS.read_text(), Owners().chown)


@pytest.mark.parametrize("note", ["init: the shop", "init: traffic"])
def test_note_does_not_make_a_key_init_s(volumes: Path, prepare: Any, note: str) -> None:
    """A key stays whose note looks like init's own: its id tells whose it is."""
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    file = volumes / prepare.SECRETS / prepare.KEYS_FILE
    added = split_key(create_key(file, ["events"], note=note))
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    keys = read_keys(file)
    assert added in [(key.id, key.sha256) for key in keys]
    assert len(keys) == len(prepare.KEYS) + 1


def test_replaced_key_opens_nothing_whatever_its_id_was(volumes: Path, prepare: Any) -> None:
    """Volumes from before init's keys had ids of their own: the old key goes when its file is removed, not before."""
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    secrets = volumes / prepare.SECRETS
    old = "nk_0123456789ab_" + "x" * 43
    (secrets / "traffic" / "key").unlink()
    (secrets / "traffic" / "key").write_text(old)
    document = json.loads((secrets / prepare.KEYS_FILE).read_text())
    entries = [key for key in document["keys"] if key["note"] != "init: traffic"]
    (secrets / prepare.KEYS_FILE).chmod(0o600)
    (secrets / prepare.KEYS_FILE).write_text(json.dumps({"format": 1, "keys": entries}))
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    assert split_key(old) in [(key.id, key.sha256) for key in read_keys(secrets / prepare.KEYS_FILE)]
    (secrets / "traffic" / "key").unlink()
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    keys = read_keys(secrets / prepare.KEYS_FILE)
    assert split_key(old) not in [(key.id, key.sha256) for key in keys]
    assert len(keys) == len(prepare.KEYS)


def test_keys_made_meanwhile_are_not_lost(volumes: Path, prepare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nextitem-serve keys` waits until init has written what it read, or the key that it adds would be lost."""
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    file = volumes / prepare.SECRETS / prepare.KEYS_FILE
    (volumes / prepare.SECRETS / "traffic" / "key").unlink()  # so that init has something to write
    render, added = prepare.render_keys, []

    def render_slowly(*arguments: Any) -> str:
        content: str = render(*arguments)
        thread = Thread(target=lambda: added.append(create_key(file, ["events"], note="the shop")))
        thread.start()
        threads.append(thread)
        thread.join(0.5)  # without the lock it is done by then
        return content

    threads: list[Thread] = []
    monkeypatch.setattr(prepare, "render_keys", render_slowly)
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    threads[0].join(30)
    known = [(key.id, key.sha256) for key in read_keys(file)]
    assert split_key(added[0]) in known
    assert len(known) == len(prepare.KEYS) + 1


def test_interrupted_run_is_made_good(volumes: Path, prepare: Any) -> None:
    """A draft that a killed run left behind does not stand in the way."""
    prepare.prepare(volumes, USERS.read_text(), Owners().chown)
    file = volumes / prepare.SECRETS / prepare.GRAFANA_PASSWORD
    file.unlink()
    file.with_suffix(".new").write_text("half")
    assert prepare.prepare(volumes, USERS.read_text(), Owners().chown) == ["grafana/admin-password"]
    assert len(file.read_text()) >= 40


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and util-linux's setpriv")
def test_chown_is_all_the_power_it_needs(volumes: Path, prepare: Any) -> None:
    """Root with no other capability prepares the volumes, and again, though they are not root's any more."""
    only_chown = ["setpriv", "--bounding-set=-all,+chown", "--inh-caps=-all", "--no-new-privs"]
    command = [*only_chown, sys.executable, "-I", str(SCRIPT), str(volumes), str(USERS)]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True, timeout=120) for _ in range(2))
    assert "made  secrets volume: service/valkey-password" in first.stdout
    assert "kept  secrets volume: service/valkey-password" in second.stdout
    assert f"cat init {volumes / prepare.SECRETS / prepare.GRAFANA_PASSWORD}" in second.stdout
    file = volumes / prepare.SECRETS / prepare.GRAFANA_PASSWORD
    assert (file.stat().st_uid, file.stat().st_gid) == (0, prepare.IDS["grafana"])
    assert file.read_text() not in first.stdout
    for volume, owner in prepare.OWNERS.items():
        assert (volumes / volume).stat().st_uid == prepare.IDS[owner]
