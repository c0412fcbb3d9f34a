"""Each container of ours as a process: its own command, under its image's environment and the compose file's together.

What differs is where things lie: volumes are folders, the store listens on a unix socket, the port is a free one.
"""

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

REPOSITORY = Path(__file__).parents[2]
BUNDLE = REPOSITORY / "tests" / "serving" / "bundle"
USERS, ITEMS = 24, 12
START_S = 90
"""For one that starts on a machine with much else to do."""


def read_image(stages: dict[str, list[str]], target: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """What a target of the Dockerfile sets: its environment, and ENTRYPOINT, CMD and the command of HEALTHCHECK."""
    chain, stage = list(stages[target]), target
    while (stage := chain[0].split()[1]) in stages:
        chain = [*stages[stage], *chain[1:]]
        chain[0] = stages[stage][0]
    environment: dict[str, str] = {}
    commands: dict[str, list[str]] = {}
    for line in chain:
        word, _, rest = line.partition(" ")
        if word == "ENV":
            environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        elif word in {"ENTRYPOINT", "CMD"}:
            commands[word] = json.loads(rest)
        elif word == "HEALTHCHECK":
            commands[word] = json.loads(rest.partition(" CMD ")[2])
    return environment, commands


@dataclass(frozen=True)
class Container:
    """What the engine would run, and with what environment; every path and address is one of this machine."""

    command: list[str]
    environment: dict[str, str]
    probe: list[str] | None
    log: Path

    @contextmanager
    def run(self) -> Iterator[subprocess.Popen[bytes]]:
        """The process, in a group of its own; whatever is left of it is killed."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                self.command,
                env=self.environment,
                cwd=REPOSITORY,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)

    def is_healthy(self) -> bool:
        """What its health check finds now."""
        assert self.probe is not None
        found = subprocess.run(
            self.probe, env=self.environment, cwd=REPOSITORY, capture_output=True, timeout=120, check=False
        )
        return found.returncode == 0

    def wait_for(self, process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
        """Wait while it runs; one that ends has refused to start, and its log says why."""
        deadline = time.monotonic() + START_S
        while not happened():
            assert process.poll() is None, f"it ended with {process.returncode}: {self.log.read_text()}"
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def stop(self, process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> int:
        """As the engine stops it. The exit status."""
        process.send_signal(number)
        return process.wait(START_S)


Start = Callable[[str], Container]


@pytest.fixture(scope="module")
def describe(
    configure: Callable[..., dict[str, Any]],
    stages: dict[str, list[str]],
    store: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Start:
    """A container by its name in the compose file."""
    services = configure("docker-compose.yml", COMPOSE_PROFILES="traffic,retrain,day-two")["services"]
    socket_path, secrets = store
    volumes = secrets.parent
    shutil.copytree(BUNDLE, volumes / "bundles", dirs_exist_ok=True)
    data = tmp_path_factory.mktemp("data")
    _write_log(data)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])

    def make(name: str) -> Container:
        service = services[name]
        folder = tmp_path_factory.mktemp(name)
        image, commands = read_image(stages, service["build"]["target"])
        places = {"/opt/nextitem/bin": str(Path(sys.executable).parent), "/data/ml-100k": str(data)}
        for mount in service["volumes"]:
            inside = volumes / {"store": "valkey"}.get(mount["source"], mount["source"])
            places[mount["target"]] = str(inside) if mount["type"] == "volume" else mount["source"]
        if "/tmp" in service.get("tmpfs", []):  # noqa: S108 - the container's
            places["/tmp"] = str(folder)  # noqa: S108
        paths = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))

        def move(text: str) -> str:
            text = re.sub(rf"(?<![\w./])({paths})(?![\w-])", lambda found: places[found[0]], text)
            text = re.sub(r"redis://(\w+)@valkey:6379/0", rf"unix://\1@{socket_path}", text)
            return text.replace("http://service:8000", f"http://127.0.0.1:{port}").replace("$PATH", os.environ["PATH"])

        environment = {"LANG": "C.UTF-8", "PATH": os.environ["PATH"], **image, **(service.get("environment") or {})}
        environment = {key: move(str(value)) for key, value in environment.items()}
        if "NEXTITEM_PORT" in environment:
            environment["NEXTITEM_PORT"] = port
        if "PYTHONPATH" in os.environ:  # where the code lies, which an image has among its packages
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        command = [*commands.get("ENTRYPOINT", []), *service["command"]] if service.get("command") else None
        return Container(
            [move(word) for word in command or commands["ENTRYPOINT"]],
            environment,
            _read_probe(service, commands.get("HEALTHCHECK"), move),
            folder / "log",
        )

    return make


def _read_probe(service: dict[str, Any], image: Sequence[str] | None, move: Callable[[str], str]) -> list[str] | None:
    """The command of a service's own health check, or of its image's."""
    own = service.get("healthcheck", {})
    if own.get("disable"):
        return None
    if "test" not in own:
        return [move(word) for word in image] if image else None
    kind, *words = own["test"]
    words = [move(word.replace("$$", "$")) for word in words]
    return ["/bin/sh", "-c", *words] if kind == "CMD-SHELL" else words


def _write_log(folder: Path) -> None:
    """A log as MovieLens-100K's, of the items that the small bundle knows."""
    rows = [
        f"{user},i{1 + (user + step) % ITEMS:02},{880_000_000 + step},4"
        for user in range(1, USERS + 1)
        for step in range(8)
    ]
    (folder / "interactions.csv").write_text("\n".join(["user,item,timestamp,value", *rows, ""]))
    items = [f"i{number:02},Title {number},1999,Drama" for number in range(1, ITEMS + 1)]
    (folder / "items.csv").write_text("\n".join(["item,title,year,genres", *items, ""]))


@pytest.fixture(scope="module")
def service(describe: Start) -> Iterator[tuple[Container, subprocess.Popen[bytes]]]:
    """The service's container, healthy."""
    container = describe("service")
    assert not container.is_healthy()
    with container.run() as process:
        container.wait_for(process, container.is_healthy)
        yield container, process
        assert container.stop(process) == 0, container.log.read_text()


def test_init_prepares_the_volumes_and_ends(
    configure: Callable[..., dict[str, Any]], stages: dict[str, list[str]], prepare: Any, tmp_path: Path
) -> None:
    """Its command ends with 0; who is not root cannot give files away, so that the owners are looked at elsewhere."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    init = configure("docker-compose.yml")["services"]["init"]
    image, _ = read_image(stages, init["build"]["target"])
    for name in (*prepare.OWNERS, prepare.SECRETS):
        (tmp_path / name).mkdir()
    deploy = REPOSITORY / "deploy"
    places = {"/init/": f"{deploy / 'init'}/", "/volumes": str(tmp_path), "/valkey/": f"{deploy / 'valkey'}/"}
    command = [sys.executable, *init["entrypoint"][1:]]
    for place, here in places.items():
        command = [word.replace(place, here, 1) if word.startswith(place) else word for word in command]
    ended = subprocess.run(command, env=image, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / prepare.SECRETS / prepare.KEYS_FILE).exists()


@pytest.mark.usefixtures("service")
def test_service_is_healthy_and_lets_nobody_in_without_a_key(
    service: tuple[Container, subprocess.Popen[bytes]], store: tuple[Path, Path]
) -> None:
    """The image's own check passes; a stranger gets 401, init's key an answer."""
    url = f"http://127.0.0.1:{service[0].environment['NEXTITEM_PORT']}"
    assert service[0].environment["NEXTITEM_HOST"] == "0.0.0.0"  # noqa: S104 - as the image has it
    key = (store[1] / "client" / "key").read_text()
    for headers, status in (({}, 401), ({"Authorization": f"Bearer {key}"}, 200)):
        assert httpx.post(f"{url}/recommend", json={"user_id": "u"}, headers=headers, timeout=120).status_code == status


def test_archiver_runs_and_is_healthy_once_it_has_archived(describe: Start) -> None:
    """It neither refuses the image's environment nor the compose file's, and tells when it stands still."""
    archiver = describe("archiver")
    assert archiver.environment["NEXTITEM_HOST"] == "0.0.0.0"  # noqa: S104 - the image's, which is meant for the service
    assert not archiver.is_healthy()
    with archiver.run() as process:
        archiver.wait_for(process, archiver.is_healthy)
        assert archiver.stop(process) == 0, archiver.log.read_text()


def test_judge_runs_and_is_healthy_once_it_has_written(describe: Start) -> None:
    """As the archiver; it writes its scores beside the bundles."""
    judge = describe("judge")
    assert not judge.is_healthy()
    with judge.run() as process:
        judge.wait_for(process, judge.is_healthy)
        assert judge.stop(process) == 0, judge.log.read_text()


def test_traffic_is_healthy_while_requests_go_well(
    describe: Start, service: tuple[Container, subprocess.Popen[bytes]]
) -> None:
    """It says where to look once it sends, and is unhealthy when its requests stopped going well a minute ago."""
    container, process = service
    traffic = describe("traffic")
    assert not traffic.is_healthy()
    with traffic.run() as sender:
        traffic.wait_for(sender, lambda: "Ready: " in traffic.log.read_text())
        traffic.wait_for(sender, traffic.is_healthy)
        alive = traffic.log.parent / "alive"
        _move_back(alive)
        traffic.wait_for(sender, traffic.is_healthy)  # it goes on sending
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            time.sleep(1)  # what was under way is answered
            _move_back(alive)
            time.sleep(2)
            assert not traffic.is_healthy()
            assert sender.poll() is None
        finally:
            os.killpg(process.pid, signal.SIGCONT)
        container.wait_for(process, container.is_healthy)
        traffic.wait_for(sender, traffic.is_healthy)
        assert traffic.stop(sender) == 0, traffic.log.read_text()
    assert "http://127.0.0.1:8000/docs" in traffic.log.read_text()


def _move_back(file: Path) -> None:
    """As if nothing had touched it for two minutes."""
    long_ago_s = time.time() - 120
    os.utime(file, (long_ago_s, long_ago_s))


def test_retrainer_is_healthy_once_a_round_has_ended(describe: Start, store: tuple[Path, Path]) -> None:
    """In a new stack nothing is archived yet, which is no failure; it goes on until it is stopped."""
    retrainer, archive = describe("retrainer"), store[1].parent / "archive"
    archive.mkdir(exist_ok=True)
    (archive / "archive.lock").touch()
    assert not list(archive.glob("*.jsonl.gz"))
    assert not retrainer.is_healthy()
    with retrainer.run() as process:
        retrainer.wait_for(process, retrainer.is_healthy)
        assert "holds no event yet" in retrainer.log.read_text()
        assert retrainer.stop(process, signal.SIGINT) == 130, retrainer.log.read_text()


def test_day_two_does_not_begin_beside_the_retrainer(describe: Start, store: tuple[Path, Path]) -> None:
    """It takes its arguments and its key, sees the retrainer's lock, and ends with a sentence: nothing was changed."""
    day_two, volumes = describe("day-two"), store[1].parent
    before = (volumes / "bundles" / "current").read_bytes()
    with (volumes / "runs" / "retrain.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with day_two.run() as process:
            assert process.wait(START_S) == 1
    assert "a retraining is under way" in " ".join(day_two.log.read_text().split())
    assert (volumes / "bundles" / "current").read_bytes() == before
    assert not (volumes / "runs" / "day-two").exists()


def test_trainer_trains_until_it_is_stopped(describe: Start, store: tuple[Path, Path]) -> None:
    """It takes its environment and arguments, begins a run in its volume, and saves it when told to stop."""
    trainer, runs = describe("trainer"), store[1].parent / "runs"
    with trainer.run() as process:
        trainer.wait_for(process, lambda: any(runs.glob("*/metrics.jsonl")))
        os.killpg(process.pid, signal.SIGINT)  # TINI_KILL_PROCESS_GROUP
        assert process.wait(START_S) == 130, trainer.log.read_text()
