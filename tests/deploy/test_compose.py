"""docker-compose.yml as Compose itself reads it: who may do what, who waits for whom, and that the users agree."""

import math
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
ONE_SHOT = {"init", "trainer", "day-two"}
"""They do their work and end."""
PROFILES = {"traffic": "traffic", "retrainer": "retrain", "day-two": "day-two"}
"""Services that only run where their profile is asked for."""
SERVICES = sorted(ONE_SHOT | PROFILES.keys() | {"valkey", "service", "archiver", "judge", "prometheus", "grafana"})
ALL_PROFILES = ",".join(sorted(set(PROFILES.values())))
FILES = {"plain": ["docker-compose.yml"], "gpu": ["docker-compose.yml", "docker-compose.gpu.yml"]}

Service = dict[str, Any]
Configure = Callable[..., dict[str, Any]]


def is_unprivileged(service: Service) -> bool:
    """A user and group by number, not root; init alone is root, to give files away."""
    user, _, group = service["user"].partition(":")
    return service["user"] == "0:0" if is_init(service) else int(user) > 0 and int(group) > 0


def is_init(service: Service) -> bool:
    """Whether it is the one that prepares the volumes."""
    return "/init/prepare.py" in (service.get("entrypoint") or [])


def has_no_host(service: Service) -> bool:
    """Nothing of the host's own: no network, processes, IPC or devices, and no socket of the engine."""
    sources = [mount.get("source", "") for mount in service.get("volumes", [])]
    return (
        service.get("network_mode") in {None, "none"}
        and not any(key in service for key in ("pid", "ipc", "uts", "userns_mode", "devices", "privileged"))
        and not any("docker.sock" in source or source in {"/", "/etc", "/var/run"} for source in sources)
    )


def mounts_safely(service: Service) -> bool:
    """Of the repository it sees parts of deploy/, and none is writable."""
    bound = [mount for mount in service.get("volumes", []) if mount["type"] == "bind"]
    deploy = str(REPOSITORY / "deploy") + "/"
    return all(mount.get("read_only") and mount["source"].startswith(deploy) for mount in bound)


def keeps_secrets(service: Service) -> bool:
    """Secrets are written by init only, and no value of the environment is one."""
    mounts = [mount for mount in service.get("volumes", []) if mount.get("source") == "secrets"]
    environment = service.get("environment") or {}
    return (is_init(service) or all(mount.get("read_only") for mount in mounts)) and not any(
        re.search(r"PASSWORD|SECRET|TOKEN", name) and not name.endswith("FILE") for name in environment
    )


RULES: dict[str, tuple[Callable[[Service], bool], Service]] = {
    "no root": (is_unprivileged, {"user": "0:10001", "entrypoint": None}),
    "read-only": (lambda service: service["read_only"] is True, {"read_only": False}),
    "no capability": (lambda service: service["cap_drop"] == ["ALL"], {"cap_drop": ["NET_RAW"]}),
    "none given back": (
        lambda service: service.get("cap_add", []) == (["CHOWN"] if is_init(service) else []),
        {"cap_add": ["SYS_ADMIN"]},
    ),
    "no new privileges": (
        lambda service: service["security_opt"] == ["no-new-privileges:true"],
        {"security_opt": ["no-new-privileges:true", "seccomp:unconfined"]},
    ),
    "memory": (lambda service: 2**24 < int(service["mem_limit"]) <= 6 * 2**30, {"mem_limit": "0"}),
    "processors": (lambda service: 0 < float(service["cpus"]) <= 2, {"cpus": 0}),
    "processes": (lambda service: 0 < service["pids_limit"] <= 256, {"pids_limit": -1}),
    "loopback": (
        lambda service: all(port.get("host_ip") == "127.0.0.1" for port in service.get("ports", [])),
        {"ports": [{"target": 8000, "published": "8000"}]},
    ),
    "restarts": (
        lambda service: (
            service["restart"] == ("unless-stopped" if "ports" in service or not ran_once(service) else "no")
        ),
        {"restart": "always"},
    ),
    "pinned": (
        lambda service: "build" in service or re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", service["image"]) is not None,
        {"image": "valkey/valkey:latest", "build": None},
    ),
    "nothing of the host": (has_no_host, {"network_mode": "host"}),
    "mounts": (mounts_safely, {"volumes": [{"type": "bind", "source": "/home", "read_only": True}]}),
    "secrets": (keeps_secrets, {"environment": {"VALKEY_PASSWORD": "x"}}),
    "log rotation": (
        lambda service: {"max-size", "max-file"} <= set(service["logging"]["options"]),
        {"logging": {"driver": "json-file", "options": {}}},
    ),
}
"""What every service must be, and a change that breaks it."""


def ran_once(service: Service) -> bool:
    """Whether it is one of those that do their work and end."""
    return is_init(service) or bool({"demo.bundle", "demo.stack"} & set(service.get("command") or []))


@pytest.fixture(scope="module")
def stacks(configure: Configure) -> dict[str, dict[str, Any]]:
    """The whole configuration without and with the GPU file."""
    return {name: configure(*files, COMPOSE_PROFILES=ALL_PROFILES) for name, files in FILES.items()}


@pytest.mark.parametrize("stack", FILES)
def test_stack_has_exactly_these_services(stacks: dict[str, dict[str, Any]], stack: str) -> None:
    """What is listed here is all there is, so that no service escapes the rules."""
    assert sorted(stacks[stack]["services"]) == SERVICES


@pytest.mark.parametrize("stack", FILES)
@pytest.mark.parametrize("name", SERVICES)
def test_service_keeps_every_rule(stacks: dict[str, dict[str, Any]], stack: str, name: str) -> None:
    """Each service is contained in every way that RULES lists."""
    service = stacks[stack]["services"][name]
    assert [rule for rule, (holds, _) in RULES.items() if not holds(service)] == []


@pytest.mark.parametrize("rule", RULES)
def test_rule_notices_what_breaks_it(stacks: dict[str, dict[str, Any]], rule: str) -> None:
    """A service changed for the worse is found by the very rule."""
    holds, worse = RULES[rule]
    service = deepcopy(stacks["plain"]["services"]["trainer"]) | worse
    assert not holds({key: value for key, value in service.items() if value is not None})


def test_who_waits_for_whom(stacks: dict[str, dict[str, Any]]) -> None:
    """Nothing starts before what it needs has ended well or is healthy, and who is waited for can say so."""
    services = stacks["plain"]["services"]
    waits = {
        name: {other: how["condition"].removeprefix("service_") for other, how in service.get("depends_on", {}).items()}
        for name, service in services.items()
    }
    prepared = {"init": "completed_successfully"}
    assert waits == {
        "init": {},
        "valkey": prepared,
        "trainer": prepared,
        "prometheus": prepared,
        "service": {"valkey": "healthy", "trainer": "completed_successfully"},
        "archiver": {"valkey": "healthy"},
        "judge": {"valkey": "healthy", "trainer": "completed_successfully"},
        "retrainer": {"archiver": "healthy", "trainer": "completed_successfully"},
        "day-two": {"service": "healthy", "archiver": "healthy", "judge": "healthy"},
        "traffic": {"service": "healthy"},
        "grafana": {"prometheus": "healthy"},
    }
    # The service's own is in its image; those of its image's other containers must not be that one: it asks for a port.
    assert {name for name, service in services.items() if "test" in service.get("healthcheck", {})} == {
        "valkey",
        "archiver",
        "judge",
        "retrainer",
        "traffic",
        "prometheus",
        "grafana",
    }


def test_networks_lead_nowhere(stacks: dict[str, dict[str, Any]]) -> None:
    """Only service, archiver and judge reach the store, no network leads out, and who prepares or trains has none."""
    services, networks = stacks["plain"]["services"], stacks["plain"]["networks"]
    members = {
        network: {name for name in services if network in services[name].get("networks", {})} for network in networks
    }
    assert members == {
        "store": {"valkey", "service", "archiver", "judge"},
        "edge": {"service", "traffic", "day-two", "prometheus", "grafana"},
    }
    assert networks["store"]["internal"] is True
    assert networks["edge"]["driver_opts"]["com.docker.network.bridge.enable_ip_masquerade"] == "false"
    alone = {name for name in services if services[name].get("network_mode") == "none"}
    assert alone == {"init", "trainer", "retrainer"}


def test_stop_leaves_time_to_drain(stacks: dict[str, dict[str, Any]]) -> None:
    """The engine waits for longer than the service drains before it kills."""
    from service.process.worker import KILL_AFTER_S  # noqa: PLC0415
    from service.settings import Settings  # noqa: PLC0415 - only this test needs the service

    grace = re.fullmatch(r"(\d+)s", stacks["plain"]["services"]["service"]["stop_grace_period"])
    assert grace is not None
    assert int(grace[1]) > Settings(bundle=Path()).drain_delay_s + KILL_AFTER_S
    assert f"the service has {grace[1]} s" in (REPOSITORY / "docs" / "how-to" / "compose.md").read_text()


def test_connections_outlive_the_worker_that_they_wait_for(stacks: dict[str, dict[str, Any]]) -> None:
    """The service alone has workers that share a port: there a closed socket hands over its queue."""
    services = stacks["plain"]["services"]
    told = {name: service["sysctls"] for name, service in services.items() if service.get("sysctls")}
    assert told == {"service": {"net.ipv4.tcp_migrate_req": "1"}}
    assert int(services["service"]["environment"]["NEXTITEM_WORKERS"]) > 1


@pytest.mark.parametrize("name", ["trainer", "day-two"])
def test_trainer_is_stopped_as_in_a_terminal(stacks: dict[str, dict[str, Any]], name: str) -> None:
    """The signal reaches the training, which is a process below the container's first, and it has time to save."""
    trainer = stacks["plain"]["services"][name]
    assert trainer["init"] is True
    assert trainer["environment"]["TINI_KILL_PROCESS_GROUP"] == "1"
    assert trainer["stop_grace_period"] == "1m0s"


def test_threads_are_counted_by_the_container_s_processors(stacks: dict[str, dict[str, Any]]) -> None:
    """Not by the host's cores, which would exceed pids_limit: every library that would is told how many."""
    services = stacks["plain"]["services"]
    told = {
        name: {key: int(value) for key, value in (service.get("environment") or {}).items() if "THREADS" in key}
        for name, service in services.items()
    }
    both = {"OMP_NUM_THREADS": 2, "OPENBLAS_NUM_THREADS": 2, "POLARS_MAX_THREADS": 2}
    assert {name: threads for name, threads in told.items() if threads} == {
        "trainer": both,
        "retrainer": both,
        "day-two": both,
        "traffic": both,
        "service": {"OPENBLAS_NUM_THREADS": 1},
        "archiver": {"OPENBLAS_NUM_THREADS": 1},
        "judge": {"OPENBLAS_NUM_THREADS": 1},
    }
    assert all(
        limit <= math.ceil(services[name]["cpus"]) for name in ("trainer", "service") for limit in told[name].values()
    )


def test_ports_are_those_of_the_readme_and_move(configure: Configure) -> None:
    """8000, 9090 and 3000, or what the environment says."""

    def published(**environment: str) -> dict[str, str]:
        services = configure("docker-compose.yml", **environment)["services"]
        return {name: port["published"] for name in services for port in services[name].get("ports", [])}

    assert published() == {"service": "8000", "prometheus": "9090", "grafana": "3000"}
    assert published(SERVICE_PORT="8080")["service"] == "8080"


def test_profiles_switch_services_on_and_nothing_else(configure: Configure) -> None:
    """An empty COMPOSE_PROFILES leaves out those that have one; .env asks for traffic alone; each can be asked for."""

    def list_profiled(**environment: str) -> set[str]:
        services = set(configure("docker-compose.yml", **environment)["services"])
        assert services | PROFILES.keys() == set(SERVICES)
        return services & PROFILES.keys()

    assert list_profiled() == {"traffic"}
    assert list_profiled(COMPOSE_PROFILES="") == set()
    for name, profile in PROFILES.items():
        assert list_profiled(COMPOSE_PROFILES=profile) == {name}


def test_grafana_has_no_well_known_password(stacks: dict[str, dict[str, Any]]) -> None:
    """The password comes from the file that init makes, nobody signs up or comes in anonymously."""
    grafana = stacks["plain"]["services"]["grafana"]
    [secrets] = [mount["target"] for mount in grafana["volumes"] if mount["source"] == "secrets"]
    assert grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"] == f"{secrets}/grafana/admin-password"
    assert grafana["environment"]["GF_USERS_ALLOW_SIGN_UP"] == "false"
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"


def test_users_are_those_that_init_prepares_for(stacks: dict[str, dict[str, Any]], prepare: Any) -> None:
    """Each service runs as the user that its volumes are given to, and init sees every volume."""
    services = stacks["plain"]["services"]
    ids = prepare.IDS
    assert {name: services[name]["user"] for name in ids} == {
        name: f"{ids['service'] if name == 'day-two' else number}:{number}" for name, number in ids.items()
    }
    assert services["trainer"]["user"] == services["service"]["user"]
    targets = {Path(mount["target"]) for mount in services["init"]["volumes"]}
    assert targets >= {Path("/volumes") / volume for volume in (*prepare.OWNERS, prepare.SECRETS)}
    named = {mount["source"] for mount in services["init"]["volumes"] if mount["type"] == "volume"}
    assert named == set(stacks["plain"]["volumes"])


def test_settings_are_the_service_s(stacks: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The service accepts the environment as it stands, and finds its password where init puts it."""
    from service.settings import Settings  # noqa: PLC0415 - only this test needs the service

    for name, value in stacks["gpu"]["services"]["service"]["environment"].items():
        monkeypatch.setenv(name, value)
    settings = Settings(bundle=Path("/bundles"))
    assert (settings.workers, settings.provider) == (2, "cuda")
    assert str(settings.redis_password_file) == "/secrets/service/valkey-password"
    assert (str(settings.keys_file), settings.docs) == ("/secrets/service/keys.json", True)


def test_scenarios_are_where_the_service_looks_for_them(stacks: dict[str, dict[str, Any]]) -> None:
    """The folder of the file is mounted, and the service can use every scenario in it."""
    from service.scenarios.file import read_scenarios  # noqa: PLC0415 - only this test needs it

    service = stacks["plain"]["services"]["service"]
    file = Path(service["environment"]["NEXTITEM_SCENARIOS"])
    [folder] = [mount["source"] for mount in service["volumes"] if mount["target"] == str(file.parent)]
    assert {*read_scenarios(Path(folder) / file.name)} == {"home", "recent-first"}


def test_clients_find_their_keys(stacks: dict[str, dict[str, Any]], prepare: Any) -> None:
    """Those that ask the service read the keys that init makes for them, and see the volume that holds them."""
    services = stacks["plain"]["services"]
    prometheus = (REPOSITORY / "deploy" / "prometheus" / "prometheus.yml").read_text()
    said_by = {name: " ".join(services[name]["command"]) for name in ("traffic", "day-two")} | {
        "prometheus": prometheus
    }
    for name, said in said_by.items():
        [mounted] = [mount["target"] for mount in services[name]["volumes"] if mount["source"] == "secrets"]
        assert Path(name) / "key" in prepare.KEYS
        assert f"{mounted}/{name}/key" in said


def test_archiver_archives_where_its_volume_is(stacks: dict[str, dict[str, Any]]) -> None:
    """It reads the secrets that init prepared and writes its own volume; test_containers.py runs it."""
    archiver = stacks["plain"]["services"]["archiver"]
    assert archiver["command"] == ["archive"]
    assert archiver["environment"]["NEXTITEM_ARCHIVE_DIR"] == "/archive"
    assert Path(archiver["environment"]["NEXTITEM_REDIS_PASSWORD_FILE"]) == Path("/secrets/archiver/valkey-password")
    assert {mount["target"]: mount.get("read_only", False) for mount in archiver["volumes"]} == {
        "/secrets": True,
        "/archive": False,
    }


def test_judge_writes_to_the_bundles_alone(stacks: dict[str, dict[str, Any]]) -> None:
    """It is the one that may promote; the service sees the folder and cannot change it. It yields to all others."""
    services = stacks["plain"]["services"]
    judge = services["judge"]
    assert judge["command"] == ["judge"]
    assert Path(judge["environment"]["NEXTITEM_REDIS_PASSWORD_FILE"]) == Path("/secrets/judge/valkey-password")
    assert {mount["target"]: mount.get("read_only", False) for mount in judge["volumes"]} == {
        "/secrets": True,
        "/bundles": False,
    }
    assert {mount["target"]: mount.get("read_only", False) for mount in services["service"]["volumes"]} == {
        "/secrets": True,
        "/bundles": True,
        "/scenarios": True,
    }
    assert judge["cpu_shares"] < 1024


def test_retrainer_reads_the_archive_and_writes_runs_and_bundles(stacks: dict[str, dict[str, Any]]) -> None:
    """As the user whose they are, and by the group of the archiver, which lets it in. No secret, and it yields."""
    services = stacks["plain"]["services"]
    retrainer, archiver = services["retrainer"], services["archiver"]
    assert {mount["target"]: mount.get("read_only", False) for mount in retrainer["volumes"]} == {
        "/runs": False,
        "/bundles": False,
        "/archive": True,
    }
    assert retrainer["user"] == services["trainer"]["user"]
    assert retrainer["group_add"] == [archiver["user"].partition(":")[2]]
    assert archiver["environment"]["NEXTITEM_ARCHIVE_GROUP_ACCESS"] == "true"
    assert retrainer["cpu_shares"] < 1024


def test_day_two_is_let_in_to_what_it_needs(stacks: dict[str, dict[str, Any]], prepare: Any) -> None:
    """It owns runs and bundles, reads the archive by its group, and of the secrets its own key alone."""
    services = stacks["plain"]["services"]
    day_two, ids = services["day-two"], prepare.IDS
    assert day_two["user"] == f"{ids['service']}:{ids['day-two']}"
    assert day_two["group_add"] == services["retrainer"]["group_add"] == [str(ids["archiver"])]
    assert {name for name, service in services.items() if service.get("group_add")} == {"day-two", "retrainer"}
    assert list(ids.values()).count(ids["day-two"]) == 1
    assert {mount["target"]: mount.get("read_only", False) for mount in day_two["volumes"]} == {
        "/secrets": True,
        "/runs": False,
        "/bundles": False,
        "/archive": True,
    }
    assert f"--archive-minutes={services['archiver']['environment']['NEXTITEM_ARCHIVE_MINUTES']}" in day_two["command"]


def test_retrainer_and_its_probe_are_the_command_s(stacks: dict[str, dict[str, Any]]) -> None:
    """The trainer's own parser takes both, they agree on the folders, and the first round has time to train."""
    from training.arguments.parser import make_parser  # noqa: PLC0415 - only this test needs the trainer

    retrainer = stacks["plain"]["services"]["retrainer"]
    options, probe = (
        make_parser().parse_args(words[words.index("retrain") :])
        for words in (retrainer["command"], retrainer["healthcheck"]["test"])
    )
    assert (options.every, options.if_needed, options.check) == (86400.0, True, False)
    assert probe.check
    assert (probe.data, probe.bundle, probe.runs) == (options.data, options.bundle, options.runs)
    assert retrainer["healthcheck"]["start_period"] == "30m0s"


def test_how_often_the_log_is_archived_is_the_operator_s_to_say(configure: Configure) -> None:
    """An hour as in .env, or what the environment says."""

    def read_minutes(**environment: str) -> str:
        services = configure("docker-compose.yml", **environment)["services"]
        return str(services["archiver"]["environment"]["NEXTITEM_ARCHIVE_MINUTES"])

    assert (read_minutes(), read_minutes(ARCHIVE_MINUTES="1")) == ("60", "1")


@pytest.mark.parametrize("stack", FILES)
def test_whatever_stays_says_whether_it_is_well(
    stacks: dict[str, dict[str, Any]], stages: dict[str, list[str]], stack: str
) -> None:
    """`up --wait` waits for health checks: one that has none counts as well while it restarts for ever."""
    for name, service in stacks[stack]["services"].items():
        check = service.get("healthcheck", {})
        in_image = "build" in service and any(
            line.startswith("HEALTHCHECK") for line in stages[service["build"]["target"]]
        )
        checked = not check.get("disable") and ("test" in check or in_image)
        assert checked == (name not in ONE_SHOT), name
        assert "test" not in check or {"interval", "timeout", "retries", "start_period"} <= check.keys(), name


def test_gpu_file_changes_the_service_alone(stacks: dict[str, dict[str, Any]]) -> None:
    """The override brings image, provider, memory and device, and leaves every other service as it was."""
    plain, gpu = (deepcopy(stacks[name]["services"]) for name in ("plain", "gpu"))
    build = gpu["service"]["build"]
    assert gpu["init"]["image"] == gpu["service"]["image"] == "nextitem-service:gpu"
    assert build["args"]["EXTRA"] == "service-gpu"
    assert re.fullmatch(r"nvidia/cuda:13\.\d+\.\d+-cudnn-runtime-ubuntu24\.04", build["args"]["BASE"])
    assert build["target"] == plain["service"]["build"]["target"] == "service"
    [device] = gpu["service"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", 1, ["gpu"])
    assert gpu["service"].pop("environment") == plain["service"].pop("environment") | {"NEXTITEM_PROVIDER": "cuda"}
    assert gpu["archiver"]["image"] == gpu["service"]["image"]
    for service in (services[name] for services in (plain, gpu) for name in ("service", "init", "archiver", "judge")):
        for key in ("image", "build", "deploy", "mem_limit"):
            service.pop(key, None)
    assert gpu == plain
