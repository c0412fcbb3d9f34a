"""The settings of the service. The environment variables, the command line and --help are generated from them."""

import ipaddress
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.system.memory import MIB, find_memory_bytes

Durability = Literal["strict", "relaxed"]
"""strict: refuse events while the store may lose them. relaxed: accept them, and report it by readiness and metrics."""

PREFIX = "NEXTITEM_"
DEFAULT_TYPE = "view"
"""The type of an event that names none."""

STORE_SHARE = 0.4
"""Default share of the memory for the embedded store. A rewrite of its file may need twice that, at worst."""
ARCHIVE_SETTINGS = (
    "redis_url",
    "redis_password_file",
    "archive_dir",
    "archive_minutes",
    "archive_group_access",
    "log_level",
)
"""The settings of `nextitem-serve archive`."""
JUDGE_SETTINGS = (
    "bundle",
    "redis_url",
    "redis_password_file",
    "judge_rate",
    "judge_types",
    "attribution_hours",
    "log_level",
)
"""The settings of `nextitem-serve judge`."""
IMPORT_SETTINGS = (
    "redis_url",
    "redis_password_file",
    "data_dir",
    "store_memory_mb",
    "durability",
    "history_length",
    "history_days",
    "event_types",
    "log_level",
)
"""The settings of `nextitem-serve import`."""

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
_TYPE = re.compile(r"[A-Za-z0-9_.:-]{1,32}")
_ALLOWED = re.compile(r"\*|(?:\*\.)?[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_SCHEMES = ("redis", "rediss", "unix")


class Settings(BaseSettings):
    """The settings. Environment variables, NEXTITEM_ and the name in capitals, apply where no argument is given."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    bundle: Path = Field(
        description="Bundle to serve, or a folder of them whose deployment.json or `current` names one."
    )
    follow_s: float = Field(
        default=1.0,
        ge=0,
        le=3600,
        description="Seconds between looks at the deployment of the bundle folder: a change is served without a "
        "restart. 0: only when told, by POST /models/refresh or SIGHUP.",
    )
    also_serve: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        max_length=8,
        description="Other versions of the bundle folder to load in each worker, for requests that name one as their "
        "`ranker`; separated by commas, or the option again for each. Champion and candidate need not be named.",
    )
    redis_url: str | None = Field(
        default=None,
        description="Address of the store: redis://, rediss:// or unix://. Without it the service runs an "
        "embedded store on data_dir.",
    )
    redis_password_file: Path | None = Field(
        default=None,
        description="File with the password of redis_url's user. The service reads it for every new connection.",
    )
    durability: Durability = Field(
        default="strict",
        description="`strict` refuses events while the store may lose them; `relaxed` accepts them and reports it.",
    )
    data_dir: Path = Field(
        default=Path("nextitem-data"),
        description="Folder of the embedded store. Unused when redis_url is set.",
    )
    store_memory_mb: int | None = Field(
        default=None,
        ge=0,
        description="Maximum memory of the embedded store in MiB; beyond it the store refuses events. 0 means no "
        "limit. Default: 40 % of the memory of the machine or container.",
    )
    archive_dir: Path | None = Field(
        default=None,
        description="Folder that the event log is archived to. Default: `archive` in data_dir for the embedded "
        "store; no archive for any other store.",
    )
    archive_minutes: int = Field(
        default=60,
        ge=1,
        le=720,
        description="Minutes between archiver runs. Each run archives the log and removes erased users from the "
        "archive.",
    )
    archive_group_access: bool = Field(
        default=False, description="Let the group of the archive's folder read it, for a trainer that is another user."
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    keys_file: Path | None = Field(
        default=None,
        description="API key file, made by `nextitem-serve keys`. The service reloads it when it changes.",
    )
    allow_anonymous: bool = Field(
        default=False, description="Serve without API keys on an address that other machines can reach."
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Host names that clients may use, separated by commas, in addition to localhost. "
        "`*.example.com` allows every subdomain; `*` allows any name and is the default with keys.",
    )
    docs: bool = Field(
        default=False, description="Serve /docs and /openapi.json also on addresses that other machines can reach."
    )
    workers: int = Field(default=1, ge=1, le=256, description="Worker processes; each loads the model once.")
    provider: Literal["auto", "cuda", "cpu"] = Field(
        default="auto",
        description="Where the model runs: `cuda` fails without a usable GPU, `auto` falls back to the CPU.",
    )
    cuda_graphs: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether runs on a GPU are captured as CUDA graphs: `auto` captures them where the network "
        "allows it.",
    )
    threads: int = Field(default=1, ge=1, le=256, description="CPU threads per model run, per worker.")
    max_batch: int = Field(default=32, ge=1, le=1024, description="Maximum requests per model run.")
    max_queue: int | None = Field(
        default=None,
        ge=1,
        description="Maximum requests queued for the model, per worker; the rest get popular items. Default: "
        "max(32, 2 x max_batch).",
    )
    max_requests: int | None = Field(
        default=None,
        ge=1,
        description="Maximum requests in flight, per worker, not counting events and probes; the rest get 503. "
        "Default: max(64, 4 x max_batch).",
    )
    max_event_requests: int | None = Field(
        default=None,
        ge=1,
        description="Maximum POST /events requests in flight, per worker; the rest get 503. Default: max(64, 8 x "
        "max_batch).",
    )
    max_connections: int | None = Field(
        default=None,
        ge=1,
        description="Maximum open connections, per worker; beyond it the longest idle ones are closed. Default: "
        "what the open-file limit allows, at most 4096.",
    )
    keep_alive_s: float = Field(
        default=75.0,
        gt=0,
        le=3600,
        description="Seconds that a connection may stay idle between requests; it is closed up to an eighth later. "
        "Set it longer than the idle timeout of a proxy in front.",
    )
    max_body_mib: int = Field(
        default=16,
        ge=4,
        description="Maximum MiB of request bodies held at once, per worker, not counting bodies of up to 16 KiB."
        " Beyond it, the body that has been arriving longest gets 503.",
    )
    history_length: int = Field(
        default=1000, ge=1, le=10_000, description="Events remembered per user, the newest ones."
    )
    history_days: int = Field(
        default=400, ge=2, le=36_500, description="Days without an event after which a user's history expires."
    )
    event_types: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(DEFAULT_TYPE, "click", "cart", "purchase", "rating"),
        description=f"Allowed event types, separated by commas. They must include `{DEFAULT_TYPE}`, the default type.",
    )
    scenarios: Path | None = Field(
        default=None,
        description="File of scenarios (TOML): named defaults for the fields of POST /recommend. The service reads it "
        "anew when it changes.",
    )
    search: Literal["on", "off"] = Field(
        default="on",
        description="Whether GET /items searches items. The first search by a model builds its index, which takes "
        "about one byte per letter of the titles, per worker.",
    )
    search_field: str = Field(
        default="title",
        min_length=1,
        max_length=100,
        description="Metadata field that GET /items searches: a string, or an array of strings.",
    )
    judge: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether live events are scored: `auto` runs the judge beside an embedded store, if the bundle "
        "folder can be written; another store needs `nextitem-serve judge`.",
    )
    judge_rate: float = Field(
        default=20.0,
        gt=0,
        le=10_000,
        description="Maximum events that the judge scores per second; it skips the rest.",
    )
    judge_types: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Event types that the judge scores, separated by commas; without any it scores all."
    )
    attribution_hours: float = Field(
        default=24.0,
        gt=0,
        le=720,
        description="Hours after an answer in which an event with its recommendation_id counts as its success.",
    )
    drain_delay_s: float = Field(
        default=1.0,
        ge=0,
        le=60,
        description="Seconds that the service keeps answering after it is told to stop, so that a proxy sees "
        "/health/ready fail first.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of the messages to log. The log goes to stderr as JSON lines."
    )

    @field_validator("event_types", "allowed_hosts", "judge_types", "also_serve", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @field_validator("also_serve")
    @classmethod
    def _check_versions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_VERSION.fullmatch, value)):
            raise ValueError("give names of versions, as `nextitem-serve models list` shows them")
        return tuple(dict.fromkeys(value))

    @field_validator("judge_types")
    @classmethod
    def _check_judged(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return cls._check_types_of(value) if value else value

    @staticmethod
    def _check_types_of(value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_TYPE.fullmatch, value)) or not 1 <= len(value) <= 64:
            raise ValueError("give 1 to 64 types, each of 1 to 32 characters from A-Z a-z 0-9 _ . : -")
        return value

    @field_validator("event_types")
    @classmethod
    def _check_types(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        cls._check_types_of(value)
        if DEFAULT_TYPE not in value:
            raise ValueError(f"{DEFAULT_TYPE!r} must be one of them, because it is the default type")
        return tuple(dict.fromkeys(value))

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_ALLOWED.fullmatch, value)):
            raise ValueError("give names or addresses without a port, such as shop.example.com, *.example.com or ::1")
        return tuple(dict.fromkeys(name.lower() for name in value))

    @field_validator("redis_url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).scheme not in _SCHEMES:
            raise ValueError("must begin with redis://, rediss:// or unix://")
        return value

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        if self.redis_password_file is not None:
            if self.redis_url is None:
                raise ValueError("redis_password_file needs redis_url: the embedded store has no password")
            url = urlsplit(self.redis_url)
            if url.password is not None or parse_qs(url.query).keys() & {"username", "password"}:
                raise ValueError("with redis_password_file, redis_url names no more than the user: redis://user@host")
        return self

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.keys_file is not None and self.allow_anonymous:
            raise ValueError("keys_file and allow_anonymous contradict each other: give one of them")
        if self.keys_file is None and not self.allow_anonymous and not self.is_local:
            raise ValueError(
                "without API keys the service listens on 127.0.0.1 only. For other addresses create keys with "
                "`nextitem-serve keys create` and give --keys-file, or let everybody in with --allow-anonymous"
            )
        return self

    @classmethod
    def for_command(cls, names: Collection[str], **given: Any) -> Self:  # noqa: ANN401 - of as many types as there are settings
        """The settings of a command that has only these; all others keep their defaults and ignore the environment.

        An image sets variables for the service. The command must neither need nor refuse them.
        """
        others = {name: field.default for name, field in cls.model_fields.items() if name not in names}
        return cls(**{**others, **({} if "bundle" in names else {"bundle": Path()}), **given})

    def make_environment(self, names: Collection[str]) -> dict[str, str]:
        """This process's environment for a command that has only these settings, with them and no others in it."""
        given = self.model_dump(include=set(names), exclude_none=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        return kept | {
            f"{PREFIX}{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
            for name, value in given.items()
        }

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address. Any name but localhost may resolve to any address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def store_memory_bytes(self) -> int:
        """The memory limit of the embedded store in bytes, 0 for none."""
        if self.store_memory_mb is not None:
            return self.store_memory_mb * MIB
        return int(STORE_SHARE * find_memory_bytes())

    @property
    def queue_limit(self) -> int:
        """max_queue or its default."""
        return self.max_queue or max(32, 2 * self.max_batch)

    @property
    def request_limit(self) -> int:
        """max_requests or its default."""
        return self.max_requests or max(64, 4 * self.max_batch)

    @property
    def version_waiter_limit(self) -> int:
        """How many requests may wait for a min_history_version: few enough to leave room for all others."""
        return max(1, min(self.request_limit // 4, self.queue_limit // 2))

    @property
    def event_request_limit(self) -> int:
        """max_event_requests or its default."""
        return self.max_event_requests or max(64, 8 * self.max_batch)

    def describe_keys(self) -> str:
        """The API keys in words for the log."""
        if self.keys_file is not None:
            return str(self.keys_file)
        return "none, for this machine only" if self.is_local else "none, open to everybody"

    def describe_store(self) -> str:
        """The store in words for the log, without user and password."""
        if self.redis_url is None:
            return f"embedded in {self.data_dir.absolute()}"
        url = urlsplit(self.redis_url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def describe_errors(error: ValidationError) -> str:
    """Which settings are wrong and why, in one line. Without the values, which may hold a password."""
    return "; ".join(
        f"{_name(fault['loc'])}{fault['msg'].removeprefix('Value error, ')}"
        for fault in error.errors(include_input=False, include_url=False)
    )


def _name(location: tuple[int | str, ...]) -> str:
    if not location:
        return ""
    name = str(location[0])
    return f"--{name.replace('_', '-')} ({PREFIX}{name.upper()}): "
