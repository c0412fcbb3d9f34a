"""Prepares the volumes of docker-compose.yml before anything else starts: passwords, the store's users, owners.

Runs as root with no capability but CHOWN, at every start: a password that exists is kept. Standard library only.
"""

import argparse
import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

SECRETS = "secrets"
SERVICE_PASSWORD = Path("service/valkey-password")
ARCHIVER_PASSWORD = Path("archiver/valkey-password")
OPERATOR_PASSWORD = Path("valkey/operator-password")
GRAFANA_PASSWORD = Path("grafana/admin-password")
PASSWORDS = (SERVICE_PASSWORD, ARCHIVER_PASSWORD, OPERATOR_PASSWORD, GRAFANA_PASSWORD)
USERS = Path("valkey/users.acl")

IDS = {"service": 10001, "archiver": 10002, "valkey": 999, "prometheus": 65534, "grafana": 472}
"""The user and group of each in docker-compose.yml; all but the first two are those of the public images."""

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
    """Make what is missing in the volumes, which are the folders of `volumes`; the names of the passwords made now.

    Raises ValueError when a password that is there already is none.
    """
    made = []
    for name in PASSWORDS:
        file = volumes / SECRETS / name
        if not file.exists():
            _write_secret(file, secrets.token_urlsafe(32), chown)
            made.append(str(name))
    service, archiver, operator, _ = (_read_password(volumes / SECRETS / name) for name in PASSWORDS)
    users = render_users(
        users_template, service_password=service, archiver_password=archiver, operator_password=operator
    )
    if not (volumes / SECRETS / USERS).exists() or (volumes / SECRETS / USERS).read_text() != users:
        _write_secret(volumes / SECRETS / USERS, users, chown)
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


def _read_password(file: Path) -> str:
    """As those who use it read it: without the end of line that `echo` and editors leave."""
    password = file.read_text(encoding="utf-8").rstrip("\r\n")
    if not password or "\n" in password:
        raise ValueError(f"{file} must hold one line, the password; remove it, and init makes one")
    return password


def _write_secret(file: Path, content: str, chown: Chown) -> None:
    """Write a file whole, readable by the group of the service that its folder is named after, and by nobody else.

    It stays root's: who reads it cannot change it. Modes come before groups, since root without FOWNER and
    DAC_OVERRIDE may only touch what is its own.
    """
    folder, group = file.parent, IDS[file.parent.name]
    folder.mkdir(mode=0o750, exist_ok=True)
    if folder.stat().st_gid != group:
        folder.chmod(0o750)
        chown(folder, -1, group)
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
        *(f"{'made' if str(name) in made else 'kept'}  {SECRETS} volume: {name}" for name in PASSWORDS),
        "Grafana's user is admin; its password:",
        f"  docker compose run --rm --no-deps --entrypoint cat init {arguments.volumes / SECRETS / GRAFANA_PASSWORD}",
    ]
    print("\n".join(report))  # noqa: T201 - for `docker compose logs init`


if __name__ == "__main__":
    main()
