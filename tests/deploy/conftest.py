"""What the tests of the deployment share: what the two files say, init's script, which is no module, and the rules."""

import importlib.util
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from redis import Redis

from service.embedded.valkey import find_binary

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
PROBE = {"username": "probe", "password": "none"}
"""The health check's user, which needs no password."""


@pytest.fixture(scope="session")
def prepare() -> ModuleType:
    """deploy/init/prepare.py, as a module."""
    spec = importlib.util.spec_from_file_location("prepare", DEPLOY / "init" / "prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read_rules(name: str) -> list[dict[str, Any]]:
    [group] = yaml.safe_load((DEPLOY / "prometheus" / "rules" / name).read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


@pytest.fixture(scope="session")
def alert_rules() -> list[dict[str, Any]]:
    """The alerts as they stand in their file."""
    return _read_rules("alerts.yml")


@pytest.fixture(scope="session")
def recording_rules() -> list[dict[str, Any]]:
    """The recorded series as they stand in their file."""
    return _read_rules("recording.yml")


@pytest.fixture(scope="session")
def configure(require_tool: Callable[[str], str]) -> Callable[..., dict[str, Any]]:
    """Read Compose files with the real Compose, which needs no engine for that; warnings are failures."""
    binary = require_tool("docker-compose")
    # What somebody's shell says of the stack wins over .env.
    settings = {line.split("=")[0] for line in (REPOSITORY / ".env").read_text().splitlines() if "=" in line}
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in settings and not name.startswith(("COMPOSE_", "DOCKER_"))
    }

    def run(*files: str, **environment: str) -> dict[str, Any]:
        options = [word for file in files for word in ("--file", file)]
        answer = subprocess.run(
            [binary, *options, "config", "--format", "json"],
            cwd=REPOSITORY,
            env=clean | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (answer.returncode, answer.stderr) == (0, "")
        return json.loads(answer.stdout)

    return run


@pytest.fixture(scope="session")
def stages() -> dict[str, list[str]]:
    """The instructions of each stage, continued lines joined, comments gone."""
    text = re.sub(r"^\s*#.*\n", "", (REPOSITORY / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        start = re.fullmatch(r"FROM (\S+) AS (\S+)", line)
        if start:
            current = found.setdefault(start[2], [line])
        elif line and found:
            current.append(line)
    return found


@pytest.fixture(scope="module")
def store(
    tmp_path_factory: pytest.TempPathFactory, prepare: Any, run_store: Callable[..., Any]
) -> Iterator[tuple[Path, Path]]:
    """The socket of a server with the configuration and the users of the stack, and the folder with the passwords."""
    folder = tmp_path_factory.mktemp("stack")
    for name in (*prepare.OWNERS, prepare.SECRETS):
        (folder / name).mkdir()
    prepare.prepare(folder, (DEPLOY / "valkey" / "users.acl").read_text(), lambda *_: None)
    secrets = folder / prepare.SECRETS
    with tempfile.TemporaryDirectory(prefix="nextitem-test-") as short:
        socket = Path(short) / "store.sock"
        # What differs from the container: where it listens, and where its files are. /data must exist to be named.
        options = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder / "valkey")]
        options += ["--aclfile", str(secrets / prepare.USERS), "--logfile", str(folder / "log")]
        configuration = folder / "valkey.conf"
        configuration.write_text((DEPLOY / "valkey" / "valkey.conf").read_text().replace("\ndir /data\n", "\n"))
        with run_store([str(find_binary()), str(configuration), *options], socket, **PROBE):
            yield socket, secrets


@pytest.fixture
def log_in(store: tuple[Path, Path], prepare: Any) -> Iterator[Callable[[str], Redis]]:
    """Plain clients of the store, let in as the users of the stack."""
    socket, secrets = store
    passwords = {
        "service": prepare.SERVICE_PASSWORD,
        "archiver": prepare.ARCHIVER_PASSWORD,
        "judge": prepare.JUDGE_PASSWORD,
        "operator": prepare.OPERATOR_PASSWORD,
    }
    with ExitStack() as clients:

        def connect_as(user: str) -> Redis:
            password = (secrets / passwords[user]).read_text()
            return clients.enter_context(Redis(unix_socket_path=str(socket), username=user, password=password))

        yield connect_as


@pytest.fixture
def probe_client(store: tuple[Path, Path]) -> Iterator[Redis]:
    """A plain client that is let in as the health check."""
    with Redis(unix_socket_path=str(store[0]), username=PROBE["username"], password=PROBE["password"]) as client:
        yield client


@pytest.fixture
def in_store(store: tuple[Path, Path], prepare: Any, run_scenario: Callable[..., Any]) -> Callable[..., Any]:
    """Run a scenario with the history store connected as the service connects in the stack."""
    socket, secrets = store
    return partial(run_scenario, url=f"unix://service@{socket}", password_file=secrets / prepare.SERVICE_PASSWORD)
