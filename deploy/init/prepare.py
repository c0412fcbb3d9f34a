"""Prepares the volumes of docker-compose.yml before anything else starts: passwords, keys, the store's users, owners.

Runs as root with no capability but CHOWN, at every start: a secret that exists is kept. Standard library only.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

SECRETS = "secrets"
SERVICE_PASSWORD = Path("service/valkey-password")
ARCHIVER_PASSWORD = Path("archiver/valkey-password")
JUDGE_PASSWORD = Path("judge/valkey-password")
OPERATOR_PASSWORD = Path("valkey/operator-password")
GRAFANA_PASSWORD = Path("grafana/admin-password")
PASSWORDS = (SERVICE_PASSWORD, ARCHIVER_PASSWORD, JUDGE_PASSWORD, OPERATOR_PASSWORD, GRAFANA_PASSWORD)
USERS = Path("valkey/users.acl")

CLIENT_KEY = Path("client/key")
KEYS = {
    CLIENT_KEY: ["recommend", "events", "admin", "metrics"],
    Path("traffic/key"): ["recommend", "events", "admin"],
    Path("prometheus/key"): ["metrics"],
    Path("day-two/key"): ["recommend", "events", "metrics"],
}
"""The service's keys and what each opens; the first is for the person who runs the stack."""
KEYS_FILE = Path("service/keys.json")
"""Their digests, as service/auth/key_file.py has them, and the keys that somebody added."""
_KEY = re.compile(r"nk_([0-9a-z]{1,32})_([A-Za-z0-9_-]{43,128})")
_OURS = "init"
"""How the ids of init's keys begin. `nextitem-serve keys` makes ids of hexadecimal digits alone: none of them does."""

IDS = {
    "service": 10001,
    "judge": 10001,
    "traffic": 10002,
    "archiver": 10003,
    "day-two": 10004,
    "valkey": 999,
    "prometheus": 65534,
    "grafana": 472,
}
"""The user and group of each in docker-compose.yml; the last three are those of the public images. The judge writes to
the bundle folder, which is the service's; so does day-two, whose group alone is its own."""

OWNERS = {
    "bundles": "service",
    "runs": "service",
    "archive": "archiver",
    "valkey": "valkey",
    "prometheus": "prometheus",
    "grafana": "grafana",
}
"""Which data volume is whose."""

Chown = Callable[[Path, int, int], None]


def prepare(volumes: Path, users_template: str, chown: Chown = os.chown) -> list[str]:
    """Make what is missing in the volumes, which are the folders of `volumes`; the names of the secrets made now.

    Raises ValueError when one that is there already is none.
    """
    made = []
    for name in (*PASSWORDS, *KEYS):
        file = volumes / SECRETS / name
        if not file.exists():
            word = secrets.token_urlsafe(32)
            _write_secret(file, f"nk_{_name_id(name)}_{word}" if name in KEYS else word, chown)
            made.append(str(name))
    service, archiver, judge, operator, _ = (_read_password(volumes / SECRETS / name) for name in PASSWORDS)
    users = render_users(
        users_template,
        service_password=service,
        archiver_password=archiver,
        judge_password=judge,
        operator_password=operator,
    )
    _write_changed(volumes / SECRETS / USERS, users, chown)
    keys = {name: _read_password(volumes / SECRETS / name) for name in KEYS}
    keys_file = volumes / SECRETS / KEYS_FILE
    _make_folder(keys_file.parent, chown)
    with _locked(keys_file.parent):
        _write_changed(keys_file, render_keys(keys_file, keys, made), chown)
    for volume, owner in OWNERS.items():
        folder, number = volumes / volume, IDS[owner]
        if (folder.stat().st_uid, folder.stat().st_gid) != (number, number):
            chown(folder, number, number)
    return made


def render_users(template: str, **passwords: str) -> str:
    """The store's users: the template without its comments and blank lines, and with the passwords' digests."""
    lines = [line for line in template.splitlines() if line and not line.startswith("#")]
    digests = {f"{name}_sha256": hashlib.sha256(word.encode()).hexdigest() for name, word in passwords.items()}
    return "\n".join(lines).format(**digests) + "\n"


def render_keys(file: Path, keys: Mapping[Path, str], made: Sequence[str] = ()) -> str:
    """The service's file of keys: those of the stack, and whatever else the file holds. Raises ValueError.

    A key that was `made` just now takes the place of an older one, whose id may be any.
    """
    found = {name: _KEY.fullmatch(key) for name, key in keys.items()}
    broken = next((name for name, parts in found.items() if parts is None), None)
    if broken is not None:
        raise ValueError(f"{broken} must hold a key, nk_ID_SECRET; remove it, and init makes one")
    ids = {name: parts[1] for name, parts in found.items() if parts}
    gone = {_note(name) for name in keys if str(name) in made}
    try:
        old = json.loads(file.read_text(encoding="utf-8"))["keys"] if file.exists() else []
        entries = [entry for entry in old if entry["id"] not in ids.values() and entry["note"] not in gone]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{file} is no file of keys; remove it, and init makes one") from error
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    for name, key in keys.items():
        digest = hashlib.sha256(key.removeprefix(f"nk_{ids[name]}_").encode()).hexdigest()
        created = next((entry["created"] for entry in old if entry["sha256"] == digest), now)
        entries.append(
            {"id": ids[name], "sha256": digest, "scopes": KEYS[name], "created": created, "note": _note(name)}
        )
    return json.dumps({"format": 1, "keys": entries}, indent=1) + "\n"


def _name_id(name: Path) -> str:
    """The id of a key of the stack, the same whenever it is made anew."""
    return f"{_OURS}{name.parent}".replace("-", "")


def _note(name: Path) -> str:
    return f"init: {name.parent}"


def _read_password(file: Path) -> str:
    """As those who use it read it: without the end of line that `echo` and editors leave."""
    password = file.read_text(encoding="utf-8").rstrip("\r\n")
    if not password or "\n" in password:
        raise ValueError(f"{file} must hold one line, the secret; remove it, and init makes one")
    return password


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for `nextitem-serve keys`, which locks the folder of the file that it changes (service/auth/key_file.py)."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _make_folder(folder: Path, chown: Chown) -> None:
    """A folder for the group of the service that it is named after; one that is named after none is root's."""
    group = IDS.get(folder.name, 0)
    folder.mkdir(mode=0o750, exist_ok=True)
    if folder.stat().st_gid != group:
        folder.chmod(0o750)
        chown(folder, -1, group)


def _write_changed(file: Path, content: str, chown: Chown) -> None:
    if not file.exists() or file.read_text(encoding="utf-8") != content:
        _write_secret(file, content, chown)


def _write_secret(file: Path, content: str, chown: Chown) -> None:
    """Write a file whole, readable by the group of the service that its folder is named after, and by nobody else.

    It stays root's: who reads it cannot change it. Modes come before groups, since root without FOWNER and
    DAC_OVERRIDE may only touch what is its own.
    """
    group = IDS.get(file.parent.name, 0)
    _make_folder(file.parent, chown)
    draft = file.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR), "w") as output:
        output.write(content)
        output.flush()
        os.fchmod(output.fileno(), 0o440)
        os.fsync(output.fileno())
    chown(draft, -1, group)
    draft.replace(file)


def main() -> None:
    """Prepare, and say where everything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("volumes", type=Path, help="folder under which the volumes are mounted")
    parser.add_argument("users", type=Path, help="template of the store's users")
    arguments = parser.parse_args()
    try:
        made = prepare(arguments.volumes, arguments.users.read_text(encoding="utf-8"))
    except ValueError as error:
        parser.exit(1, f"{error}\n")
    report = [
        *(f"{'made' if str(name) in made else 'kept'}  {SECRETS} volume: {name}" for name in (*PASSWORDS, *KEYS)),
        "Your key to the service:",
        f"  docker compose run --rm --no-deps --entrypoint cat init {arguments.volumes / SECRETS / CLIENT_KEY}",
        "Grafana's user is admin; its password:",
        f"  docker compose run --rm --no-deps --entrypoint cat init {arguments.volumes / SECRETS / GRAFANA_PASSWORD}",
    ]
    print("\n".join(report))  # noqa: T201 - for `docker compose logs init`


if __name__ == "__main__":
    main()
