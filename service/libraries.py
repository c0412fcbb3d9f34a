"""Lists the overridden methods and private attributes of other libraries that the service relies on.

pyproject.toml caps these libraries at the minor versions that were tested. If an installation ignores the caps and a
method was renamed, the service would silently lose its limits. So the start checks that all of them exist. Their uses,
the tests that notice a change and the way out: docs/reference/library-internals.md.
"""

from collections.abc import Mapping
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client import Histogram
from prometheus_client.mmap_dict import MmapedDict
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Route
from uvicorn import Server
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.errors import StartFailed

PARTS: Mapping[str, Mapping[type, tuple[str, ...]]] = {
    "uvicorn": {
        HttpToolsProtocol: (
            *("connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing"),
            *("on_message_begin", "on_headers_complete", "on_message_complete", "on_response_complete"),
            *("_start_asgi_task", "timeout_keep_alive", "server_state"),
            *("cycle", "flow", "headers", "parser", "pipeline", "scope", "transport", "url"),
        ),
        FlowControl: ("resume_reading",),
        RequestResponseCycle: (
            *("send", "keep_alive", "message_event", "response_started", "response_complete", "scope", "transport"),
            *("flow", "disconnected", "waiting_for_100_continue", "default_headers", "on_response"),
            *("chunked_encoding", "expected_content_length"),
        ),
        Server: ("handle_exit", "on_tick", "startup", "shutdown", "servers", "started", "should_exit", "force_exit"),
    },
    "redis": {AbstractConnection: ("connect", "_reader", "_writer"), ConnectionPool: ("make_connection",)},
    "prometheus-client": {
        Histogram: ("_upper_bounds", "_buckets", "_sum"),
        MmapedDict: ("read_all_values_from_file", "read_value", "write_value", "close"),
    },
    "starlette": {ServerErrorMiddleware: ("app",), Route: ("matches",)},
    "fastapi": {FastAPI: ("build_middleware_stack",), APIRoute: ("get_route_handler", "matches", "param_convertors")},
}
"""Methods and attributes by class and library."""


def check_libraries() -> None:
    """Check that all of PARTS exist. Raises StartFailed."""
    for library, classes in PARTS.items():
        for kind, names in classes.items():
            for name in names:
                if not _has(kind, name):
                    raise StartFailed(
                        f"{library} {version(library)} has no {kind.__name__}.{name} any more, which this version of "
                        f"nextitem needs: install the version of {library} that pyproject.toml asks for"
                    )


def _has(kind: type, name: str) -> bool:
    """Whether a class has a method, or an attribute that one of its methods sets."""
    if hasattr(kind, name):
        return True
    codes = (getattr(part, "__code__", None) for ancestor in kind.__mro__ for part in vars(ancestor).values())
    return any(name in code.co_names for code in codes if code is not None)
