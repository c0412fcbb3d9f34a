"""Pages for browsers: the start page at `/` and the API documentation. The service hosts all of their files."""

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.auth.guard import GuardedRoute, requires_scope

DOCS = "/docs"
OPENAPI = "/openapi.json"

_OWN = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'self'; img-src data:"
)
_SWAGGER = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'"  # it sets styles of single elements
)
_FOLDER = files("service.http").joinpath("pages")
_SWAGGER_FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
_DOCS_ROW = (
    f'<tr><td><a href="{DOCS}">{DOCS}</a></td><td>Every route and field, to be tried out in the page.</td></tr>\n'
)


def make_pages(*, docs: bool) -> APIRouter:
    """The routes of the pages: `/` with its style and, with `docs`, the documentation page and its files."""
    router = APIRouter(route_class=GuardedRoute)
    index = _read("index.html").replace(b"DOCS", _DOCS_ROW.encode() if docs else b"")
    _add(router, "/", index, "text/html", _OWN)
    _add(router, "/style.css", _read("style.css"), "text/css", _OWN)
    if docs:
        _add(router, DOCS, _read("docs.html"), "text/html", _SWAGGER)
        _add(router, f"{DOCS}/start.js", _read("docs.js"), "text/javascript", _SWAGGER)
        for name, media_type in _SWAGGER_FILES.items():
            _add(router, f"{DOCS}/{name}", _read_swagger(name), media_type, _SWAGGER)
    return router


def _add(router: APIRouter, path: str, content: bytes, media_type: str, policy: str) -> None:
    """Add a public route that answers with a file."""
    headers = {"content-security-policy": policy}

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
