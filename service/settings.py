"""Every setting of the service, defined once: the environment, the command line and --help are made of these."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.durability import Durability

PREFIX = "NEXTITEM_"
DEFAULT_TYPE = "view"
"""What an event without a type is."""

_TYPE = re.compile(r"[A-Za-z0-9_.:-]{1,32}")
_SCHEMES = ("redis", "rediss", "unix")


class Settings(BaseSettings):
    """Each is also an environment variable, NEXTITEM_ and its name in capitals; what is passed wins over it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    bundle: Path = Field(description="bundle to serve, or a folder whose file `current` names one")
    redis_url: str | None = Field(
        default=None,
        description="redis://, rediss:// or unix:// address of the store; without it an embedded one runs on data_dir",
    )
    redis_password_file: Path | None = Field(
        default=None,
        description="file with the password of redis_url's user, read anew for every connection",
    )
    durability: Durability = Field(
        default="strict",
        description="`strict` refuses events while the store may lose them, `relaxed` takes them and says so",
    )
    data_dir: Path = Field(
        default=Path("nextitem-data"),
        description="folder of the embedded store, which is used when there is no redis_url",
    )
    archive_dir: Path | None = Field(
        default=None,
        description="folder to which the log is moved; the embedded store's goes to `archive` in data_dir without it",
    )
    archive_minutes: int = Field(
        default=60, ge=1, le=720, description="how often the log is archived, and erased users leave the archive"
    )
    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    keys_file: Path | None = Field(
        default=None,
        description="file of the keys that let clients in, made by `nextitem-serve keys`; read anew when it changes",
    )
    allow_anonymous: bool = Field(
        default=False, description="listen on other addresses than this machine's own without any keys"
    )
    docs: bool = Field(default=False, description="serve /docs and /openapi.json on other addresses, too")
    workers: int = Field(default=1, ge=1, le=256, description="processes that answer; each holds the model once")
    provider: Literal["auto", "cuda", "cpu"] = Field(
        default="auto",
        description="where the model runs: `cuda` fails without a usable GPU, `auto` falls back to the CPU",
    )
    cuda_graphs: Literal["auto", "off"] = Field(
        default="auto",
        description="on a GPU, whether a run is launched as one captured graph: `auto` where the network allows it",
    )
    threads: int = Field(default=1, ge=1, le=256, description="CPU threads inside one model run, for each worker")
    max_batch: int = Field(default=32, ge=1, le=1024, description="requests that share one model run, at most")
    max_queue: int | None = Field(
        default=None,
        ge=1,
        description="requests that wait for the model in each worker, at most; more get popular items; "
        "unless given twice max_batch, but 32 at least",
    )
    max_requests: int | None = Field(
        default=None,
        ge=1,
        description="requests in flight in each worker, at most, events and probes aside; more get 503; "
        "unless given 4 times max_batch, but 64 at least",
    )
    max_event_requests: int | None = Field(
        default=None,
        ge=1,
        description="POST /events in flight in each worker, at most; more get 503; "
        "unless given 8 times max_batch, but 64 at least",
    )
    history_length: int = Field(
        default=1000, ge=1, le=10_000, description="events that are remembered for each user, the newest"
    )
    history_days: int = Field(
        default=400, ge=2, le=36_500, description="days without an event after which a user's history is forgotten"
    )
    event_types: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(DEFAULT_TYPE, "click", "cart", "purchase", "rating"),
        description=f"types that events may have, separated by commas; `{DEFAULT_TYPE}`, the default type, among them",
    )
    drain_delay_s: float = Field(
        default=1.0,
        ge=0,
        le=60,
        description="seconds that requests are still taken after being told to stop, for a proxy to see it "
        "in /health/ready",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least severe messages in the log, which goes to stderr as JSON lines"
    )

    @field_validator("event_types", mode="before")
    @classmethod
    def _split_types(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @field_validator("event_types")
    @classmethod
    def _check_types(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_TYPE.fullmatch, value)) or not 1 <= len(value) <= 64:
            raise ValueError("give 1 to 64 types, each 1 to 32 of A-Z a-z 0-9 _ . : -")
        if DEFAULT_TYPE not in value:
            raise ValueError(f"{DEFAULT_TYPE!r} must be among them, since it is the default type")
        return tuple(dict.fromkeys(value))

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
                "without keys it listens on 127.0.0.1 only. For other addresses make keys by nextitem-serve keys create"
                " and give --keys-file, or let everybody in by --allow-anonymous"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address. A name other than localhost may lead anywhere."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def queue_room(self) -> int:
        """What max_queue comes to."""
        return self.max_queue or max(32, 2 * self.max_batch)

    @property
    def request_room(self) -> int:
        """What max_requests comes to."""
        return self.max_requests or max(64, 4 * self.max_batch)

    @property
    def event_room(self) -> int:
        """What max_event_requests comes to."""
        return self.max_event_requests or max(64, 8 * self.max_batch)

    def to_environment(self) -> dict[str, str]:
        """The same settings as environment variables, for worker processes."""
        values = self.model_dump(exclude_none=True)
        return {
            f"{PREFIX}{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
            for name, value in values.items()
        }

    def describe_keys(self) -> str:
        """Who is let in, in words fit for a log."""
        if self.keys_file is not None:
            return str(self.keys_file)
        return "none, for this machine only" if self.is_local else "none, open to everybody"

    def describe_store(self) -> str:
        """The store in words fit for a log: no user, no password."""
        if self.redis_url is None:
            return f"embedded in {self.data_dir}"
        url = urlsplit(self.redis_url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def describe_faults(error: ValidationError) -> str:
    """What is wrong with which setting, in one line, without the values given, which may hold a password."""
    return "; ".join(
        f"{_name(fault['loc'])}{fault['msg'].removeprefix('Value error, ')}"
        for fault in error.errors(include_input=False, include_url=False)
    )


def _name(location: tuple[int | str, ...]) -> str:
    if not location:
        return ""
    name = str(location[0])
    return f"--{name.replace('_', '-')} ({PREFIX}{name.upper()}): "
