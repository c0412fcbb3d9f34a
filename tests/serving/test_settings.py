"""Settings: from the environment, from the command line, to the environment of workers, and refused."""

import pytest
from pydantic import ValidationError

from service.cli import describe_default, make_parser
from service.settings import PREFIX, Settings, describe_errors
from service.system.memory import find_memory_bytes


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """None of our variables is set."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"{PREFIX}{name.upper()}", raising=False)


OTHERS = {
    "bundle": "some/bundle",
    "also_serve": "20261120T101500-old,v1",
    "redis_url": "rediss://host:1/2",
    "redis_password_file": "some/file",
    "durability": "relaxed",
    "data_dir": "elsewhere",
    "store_memory_mb": "100",
    "archive_dir": "some/archive",
    "archive_minutes": "5",
    "archive_group_access": "true",
    "host": "::1",
    "port": "0",
    "keys_file": "some/keys",
    "allow_anonymous": "true",
    "allowed_hosts": "shop.example,*.local.example",
    "docs": "true",
    "workers": "3",
    "provider": "cuda",
    "cuda_graphs": "off",
    "threads": "2",
    "max_batch": "64",
    "max_queue": "7",
    "max_requests": "8",
    "max_event_requests": "5",
    "max_connections": "100",
    "keep_alive_s": "30",
    "max_body_mib": "8",
    "history_length": "50",
    "history_days": "30",
    "event_types": "view,wish.list,a:b",
    "scenarios": "some/scenarios.toml",
    "search": "off",
    "search_field": "name",
    "judge": "off",
    "judge_rate": "3.5",
    "judge_types": "cart,a:b",
    "attribution_hours": "2",
    "follow_s": "0",
    "drain_delay_s": "2.5",
    "log_level": "debug",
}
FLAGS = {"allow_anonymous", "archive_group_access", "docs"}
"""Options without a value."""


def fault(**given):
    """What is said of wrong settings."""
    with pytest.raises(ValidationError) as caught:
        Settings(**({"bundle": "b"} | given))
    return describe_errors(caught.value)


def test_every_setting_is_tried_here():
    """A setting that is added is added to these tests, too, and has a description."""
    assert set(OTHERS) == set(Settings.model_fields)
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize("name", OTHERS)
def test_each_setting_is_a_variable_and_an_option(monkeypatch, name):
    """The environment sets it; an argument wins over that; both differ from the default."""
    monkeypatch.setenv("NEXTITEM_BUNDLE", "b")
    if name == "redis_password_file":
        monkeypatch.setenv("NEXTITEM_REDIS_URL", "redis://user@host")
    default = getattr(Settings(), name)
    monkeypatch.setenv(f"{PREFIX}{name.upper()}", OTHERS[name])
    from_environment = Settings()
    assert getattr(from_environment, name) != default
    monkeypatch.setenv(
        f"{PREFIX}{name.upper()}", "redis://never" if name == "redis_url" else "false" if name in FLAGS else "9"
    )
    option = f"--{name.replace('_', '-')}"
    arguments = [option] if name in FLAGS else [option, OTHERS[name]]
    assert Settings(**vars(make_parser().parse_args(arguments))) == from_environment


def test_defaults():
    """The defaults of the contract: loopback, one worker, an embedded store, five types of events."""
    settings = Settings(bundle="b")
    assert (settings.host, settings.port, settings.workers, settings.redis_url) == ("127.0.0.1", 8000, 1, None)
    assert (settings.keys_file, settings.allow_anonymous, settings.docs) == (None, False, False)
    assert (settings.provider, settings.history_length) == ("auto", 1000)
    assert settings.event_types == ("view", "click", "cart", "purchase", "rating")


def test_the_embedded_stores_memory_is_a_share_unless_given():
    """Without a number it is 40 % of what this process may use, so that the kernel's own limit is not met first."""
    assert Settings(bundle="b").store_memory_bytes == int(0.4 * find_memory_bytes())
    assert Settings(bundle="b", store_memory_mb=7).store_memory_bytes == 7 << 20
    assert Settings(bundle="b", store_memory_mb=0).store_memory_bytes == 0


def test_the_store_is_named_by_its_whole_path(monkeypatch, tmp_path):
    """A relative data folder is another one in another working directory: the log shows which."""
    monkeypatch.chdir(tmp_path)
    assert Settings(bundle="b").describe_store() == f"embedded in {tmp_path}/nextitem-data"


def test_empty_variable_is_an_absent_one(monkeypatch):
    """What compose files make of an unset variable does not count."""
    monkeypatch.setenv("NEXTITEM_REDIS_URL", "")
    assert Settings(bundle="b").redis_url is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"port": "-1"}, "--port (NEXTITEM_PORT)"),
        ({"port": "65536"}, "--port (NEXTITEM_PORT)"),
        ({"workers": "0"}, "--workers (NEXTITEM_WORKERS)"),
        ({"threads": "0"}, "--threads (NEXTITEM_THREADS)"),
        ({"max_batch": "0"}, "--max-batch (NEXTITEM_MAX_BATCH)"),
        ({"history_length": "0"}, "--history-length (NEXTITEM_HISTORY_LENGTH)"),
        ({"provider": "gpu"}, "--provider (NEXTITEM_PROVIDER)"),
        ({"cuda_graphs": "on"}, "--cuda-graphs (NEXTITEM_CUDA_GRAPHS)"),
        ({"log_level": "loud"}, "--log-level (NEXTITEM_LOG_LEVEL)"),
        ({"redis_url": "localhost:6379"}, "must begin with redis://"),
        ({"redis_password_file": "f"}, "redis_password_file needs redis_url"),
        ({"redis_password_file": "f", "redis_url": "redis://u:p@host"}, "names no more than the user"),
        ({"redis_password_file": "f", "redis_url": "redis://u@host?password=p"}, "names no more than the user"),
        ({"redis_password_file": "f", "redis_url": "redis://host?username=u"}, "names no more than the user"),
        ({"event_types": "click,cart"}, "'view' must be one of them"),
        ({"event_types": "view,two words"}, "1 to 64 types"),
        ({"event_types": "view,"}, "1 to 64 types"),
        ({"event_types": ",".join(f"t{number}" for number in range(64)) + ",view"}, "1 to 64 types"),
        ({"also_serve": "../v1"}, "names of versions"),
        ({"also_serve": "v1,"}, "names of versions"),
        ({"also_serve": ",".join(f"v{number}" for number in range(9))}, "--also-serve (NEXTITEM_ALSO_SERVE)"),
        ({"timeout_ms": "5"}, "--timeout-ms (NEXTITEM_TIMEOUT_MS)"),
    ],
)
def test_wrong_values_are_named(given, said):
    """The option and its variable are named, in one line."""
    sentence = fault(**given)
    assert said in sentence
    assert "\n" not in sentence


def test_versions_may_be_named_one_at_a_time():
    """The option again for each, or several at once; each counts once."""
    arguments = ["--bundle", "b", "--also-serve", "v1", "--also-serve", "v2,v1"]
    assert Settings(**vars(make_parser().parse_args(arguments))).also_serve == ("v1", "v2")


def test_values_are_not_repeated():
    """A wrong value may be a password."""
    assert "secret" not in fault(redis_url="http://user:secret@host", port="secret", provider="secret")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "0", "192.0.2.1", "::ffff:127.0.0.1", "localhost.", "a.b")),  # noqa: S104
    ],
)
def test_other_addresses_want_keys(host, local):
    """What is not surely this machine's own alone needs keys, or to be asked for."""
    assert Settings(bundle="b", host=host, allow_anonymous=True).is_local is local
    assert Settings(bundle="b", host=host, keys_file="k").describe_keys() == "k"
    if local:
        assert Settings(bundle="b", host=host).describe_keys() == "none, for this machine only"
    else:
        assert "create keys with `nextitem-serve keys create`" in fault(host=host)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://user:secret@host:6379/1", "redis://host:6379/1"),
        ("rediss://:s@cr@t@host", "rediss://host"),
        ("unix:///run/store.sock", "unix:///run/store.sock"),
        ("redis://host?password=secret", "redis://host"),
    ],
)
def test_store_is_described_without_its_password(url, words):
    """What the log says of the store."""
    assert Settings(bundle="b", redis_url=url).describe_store() == words


def test_help_shows_every_setting(capsys):
    """--help lists each option with its description and its default."""
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(["--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}{'' if name in FLAGS else ' ' + name.upper()} " in shown
        assert f"({describe_default(field)})".replace("- ", "-") in shown


def test_limits_follow_the_batch():
    """Unless given, room is that of some batches, and never next to nothing; given, it is what was given."""

    def rooms(**given):
        settings = Settings(bundle="b", **given)
        return settings.queue_limit, settings.request_limit, settings.event_request_limit

    assert rooms() == (64, 128, 256)
    assert rooms(max_batch=1) == (32, 64, 64)
    assert rooms(max_batch=256) == (512, 1024, 2048)
    assert rooms(max_batch=256, max_queue=1, max_requests=2, max_event_requests=3) == (1, 2, 3)
