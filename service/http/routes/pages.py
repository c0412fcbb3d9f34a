"""Pages for browsers: the console at `/` and the API documentation. The service hosts all of their files."""

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.auth.guard import GuardedRoute, requires_scope
from service.errors import NotFound
from service.http.console_files import FOLDER as CONSOLE_FOLDER
from service.http.console_files import INDEX, ConsoleFiles, takes_gzip
from service.http.outer_middleware import IMMUTABLE

DOCS = "/docs"
OPENAPI = "/openapi.json"

_CONSOLE = {
    # Text alone becomes part of the page: not even a library may make elements or scripts of it (Trusted Types).
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_SWAGGER = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "script-src 'self'; style-src 'self' 'unsafe-inline'; "  # it sets styles of single elements
    "img-src 'self' data:; connect-src 'self'"
}
_FOLDER = files("service.http").joinpath("pages")
_SWAGGER_FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
_DOCS_ROW = f'<tr><td><a href="{DOCS[1:]}">{DOCS}</a></td><td>Every route and field, to be tried out.</td></tr>\n'


def make_pages(*, docs: bool) -> APIRouter:
    """The routes of the pages: the console with its files and, with `docs`, the documentation page and its files."""
    router = APIRouter(route_class=GuardedRoute)
    _add_console(router, ConsoleFiles.read(), docs=docs)
    if docs:
        _add(router, DOCS, _read("docs.html"), "text/html", _SWAGGER)
        _add(router, f"{DOCS}/start.js", _read("docs.js"), "text/javascript", _SWAGGER)
        for name, media_type in _SWAGGER_FILES.items():
            _add(router, f"{DOCS}/{name}", _read_swagger(name), media_type, _SWAGGER)
    return router


def _add_console(router: APIRouter, console: ConsoleFiles, *, docs: bool) -> None:
    """Add the console: its page at `/` and its files, all under one template, so that metrics have one name for them.

    The page's references are relative, so that it works below any prefix of a proxy.
    """
    page = CONSOLE_FOLDER.joinpath(INDEX).read_bytes()
    page = page.replace(b"DIGEST", console.digest.encode()).replace(b"DOCS", _DOCS_ROW.encode() if docs else b"")
    _add(router, "/", page, "text/html", _CONSOLE)

    async def get_console_file(request: Request, digest: str, path: str) -> Response:
        file = console.files.get(path) if digest == console.digest else None
        if file is None:
            raise NotFound
        request.scope["state"][IMMUTABLE] = True
        headers = {**_CONSOLE, "vary": "accept-encoding"}
        if takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(file.gzipped, headers={**headers, "content-encoding": "gzip"}, media_type=file.media_type)
        return Response(file.content, headers=headers, media_type=file.media_type)

    route = router.get(
        "/console/{digest}/{path:path}",
        include_in_schema=False,
        openapi_extra=requires_scope(None),
        response_model=None,
    )
    route(get_console_file)


def _add(router: APIRouter, path: str, content: bytes, media_type: str, headers: dict[str, str]) -> None:
    """Add a public route that answers with a file."""

    async def get_file(_request: Request) -> Response:
        return Response(content, headers=headers, media_type=media_type)

    router.get(path, include_in_schema=False, openapi_extra=requires_scope(None))(get_file)


def _read(name: str) -> bytes:
    return _FOLDER.joinpath(name).read_bytes()


def _read_swagger(name: str) -> bytes:
    """A file of Swagger UI from fastapi-offline, which is not imported: only its files are wanted."""
    spec = find_spec("fastapi_offline")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("fastapi-offline is missing: pip install 'nextitem[service]' brings it")
    return (Path(spec.origin).parent / "static" / name).read_bytes()
