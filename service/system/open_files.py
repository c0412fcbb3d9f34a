"""The limit of open files and sockets. Many systems start with 1,024 where they allow far more."""

import contextlib
import resource

from service.errors import StartFailed

CONNECTIONS_MAX = 4096
"""Default maximum of connections. Each costs some 15 KB."""
RESERVE = 256
"""Open files that are not client connections: the store's, the archive's, metrics, libraries."""


def raise_limit() -> None:
    """Raise the limit of this process, and of its children, to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems report an infinite hard limit that is not
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def limit_connections(wanted: int | None) -> int:
    """How many connections a worker may keep. Raises StartFailed if `wanted` exceeds the limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else max(soft - RESERVE, soft // 2)
    if wanted is not None and soft != resource.RLIM_INFINITY and wanted > room:
        raise StartFailed(
            f"max_connections must be at most {room}, since this process may open {soft} files: see ulimit -n"
        )
    return wanted or min(room, CONNECTIONS_MAX)
