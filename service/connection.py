"""Connections to the store, as the history port wants them."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import RedisError

from service.errors import StartFailed


class PasswordFile(CredentialProvider):
    """A user, and the password that a file holds now: it is read for every connection, so that it can be rotated."""

    def __init__(self, user: str | None, path: Path) -> None:
        self._user = unquote(user or "")
        self._path = path

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """What AUTH takes. Raises OSError, and ValueError when the file holds no password."""
        password = self._path.read_text(encoding="utf-8").rstrip("\r\n")
        if not password or "\n" in password:
            raise ValueError("not one line")
        return (self._user, password) if self._user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same: a line from a local disk."""
        return self.get_credentials()


def connect(url: str, *, password_file: Path | None = None, max_connections: int = 64) -> Redis:
    """A client for redis://, rediss:// or unix:// that never repeats a command by itself. Opens no connection yet.

    Raises StartFailed when the URL is none of them or carries an option that does not exist, or without the file.
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
        # Connects to nothing, but is the first to look at the URL's options.
        pool.make_connection()  # type: ignore[no-untyped-call]  # the library leaves it untyped
    except (ValueError, TypeError, AttributeError, RedisError) as error:
        raise StartFailed(
            "the store's URL must begin with redis://, rediss:// or unix:// and be well-formed, its options included"
        ) from error
    return Redis.from_pool(pool)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
