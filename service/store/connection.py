"""Creates clients of the store from its URL and password file."""

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import RedisError

from model.contract.atomic_files import read_regular
from service.errors import StartFailed

_PASSWORD_MAX_BYTES = 64 * 1024


class PasswordFile(CredentialProvider):
    """Credentials from a password file. It is read for every connection, so that the password can be rotated."""

    def __init__(self, user: str | None, path: Path) -> None:
        self._user = unquote(user or "")
        self._path = path

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """The arguments of AUTH. Raises OSError, and ValueError if the file holds no password."""
        password = read_regular(self._path, _PASSWORD_MAX_BYTES).decode().rstrip("\r\n")
        if not password or "\n" in password:
            raise ValueError("not one line")
        return (self._user, password) if self._user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same, without a thread: one line from a local disk."""
        return self.get_credentials()


def connect(url: str, *, password_file: Path | None = None, max_connections: int = 64) -> Redis:
    """A client for a redis://, rediss:// or unix:// URL that never repeats a command. Opens no connection yet.

    Raises StartFailed for another URL, an unknown option in it, or an unreadable password file.
    """
    credentials = None
    if password_file is not None:
        credentials = PasswordFile(urlsplit(url).username, password_file)
        url = _without_user(url)
        try:
            credentials.get_credentials()
        except OSError as error:
            raise StartFailed(f"the store's password file cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise StartFailed("the store's password file must hold one line of UTF-8 text, the password") from error
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            credential_provider=credentials,
            max_connections=max_connections,
            # A burst waits for connections. HistoryStore bounds the whole call, a read more tightly than these.
            timeout=1.0,
            socket_timeout=1.0,
            socket_connect_timeout=1.0,
            # redis-py's own retries repeat commands that were executed and only lost their reply (redis-py #3559), and
            # take seconds while a server is down.
            retry=Retry(NoBackoff(), 0),
            # Without retries, a PING before a command can only add a failure. Closed connections are noticed anyway,
            # but by redis-py 8 only without the maintenance notifications that RESP3 turns on.
            health_check_interval=0,
            protocol=2,
            driver_info=None,
        )
        # Opens no connection, but checks the URL's options.
        pool.make_connection()  # type: ignore[no-untyped-call]  # the library leaves it untyped
    except (ValueError, TypeError, AttributeError, RedisError) as error:
        raise StartFailed(
            "the store's URL must begin with redis://, rediss:// or unix:// and be well-formed, its options included"
        ) from error
    return Redis.from_pool(pool)


def refuse_cluster(client: Redis) -> None:
    """Raise StartFailed if the store is a Redis Cluster. A store that does not answer passes: it may come up later."""

    async def ask() -> object:
        try:
            async with asyncio.timeout(1.0):
                return (await client.info("cluster")).get("cluster_enabled")
        finally:
            await client.aclose()

    try:
        cluster = asyncio.run(ask())
    except Exception:  # noqa: BLE001 - the service itself will report it
        return
    if cluster:
        raise StartFailed("the store is a Redis Cluster, which is not supported: use a store that is not a cluster")


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
