"""The console's files: kept by browsers under addresses of their own, small, and without anything that runs data."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from service.http.console_files import FOLDER, ConsoleFiles, takes_gzip

CONSOLE = Path(str(FOLDER))
VENDOR = CONSOLE / "vendor"
OWN = sorted(path for path in CONSOLE.iterdir() if path.suffix in (".js", ".css", ".html"))
FIRST_VIEW_BYTES, WHOLE_BYTES = 40_000, 62_000
FIRST_VIEW_REQUESTS, API_REQUESTS = 12, 1
OWN_LINES = 2000
CONTRAST = 4.5
PAIRS = [
    *((text, ground) for text in ("text", "muted") for ground in ("page", "card", "raised")),
    *((text, "card") for text in ("accent", "up", "down", "fresh", "bad")),
    ("accent", "page"),
    ("on-accent", "accent"),
]


@pytest.fixture(scope="module")
def console():
    """The files as they are served."""
    return ConsoleFiles.read()


def list_imports(path):
    """The modules that a module imports at once, by their paths in the console."""
    found = re.findall(
        r"""(?:^|[;}])\s*(?:import|export)\b[^;"']*?from\s*["']([^"']+)["']""", path.read_text(), re.MULTILINE
    )
    return {str((path.parent / name).resolve().relative_to(CONSOLE)) for name in found}


def list_first_view():
    """What the first view loads: the page, its style, app.js and what that imports."""
    wanted, todo = {"index.html", "style.css"}, {"app.js"}
    while todo:
        wanted |= todo
        todo = set().union(*(list_imports(CONSOLE / name) for name in todo)) - wanted
    return wanted


def test_page_starts_with_nothing_inline(client):
    """No script, style or handler stands in the page: the policy would refuse it."""
    page = client.get("/").text
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", page) == []
    assert not re.search(r"DIGEST|DOCS", page)


def test_page_has_the_strictest_policy_that_works(client, console):
    """Scripts, styles and answers of the service alone; neither page nor library may make markup of text."""
    for path in ("/", f"/console/{console.digest}/app.js"):
        headers = client.get(path).headers
        policy = headers.get_list("content-security-policy")[0]
        assert dict(directive.strip().split(" ", 1) for directive in policy.split(";")) == {
            "default-src": "'none'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "connect-src": "'self'",
            "img-src": "'self' data:",
            "require-trusted-types-for": "'script'",
            "trusted-types": "'none'",
        }
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"


def test_files_are_kept_and_the_page_is_not(client, console):
    """The page is asked for each time and names files that never change under their address."""
    page = client.get("/")
    assert page.headers.get_list("cache-control") == ["no-store"]
    assert f'src="console/{console.digest}/app.js"' in page.text
    for path, file in console.files.items():
        response = client.get(f"/console/{console.digest}/{path}", headers={"accept-encoding": "identity"})
        assert response.status_code == 200
        assert response.headers.get_list("cache-control") == ["public, max-age=31536000, immutable"]
        assert response.headers["content-type"] == f"{file.media_type}; charset=utf-8"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["vary"] == "accept-encoding"
        assert response.content == (CONSOLE / path).read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "console/0123456789abcdef/app.js",  # of another version
        "console/{digest}/nothing.js",
        "console/{digest}/index.html",  # it is at / alone
        "console/{digest}/vendor/packages.json",
        "console/{digest}/../console_files.py",
        "console/{digest}/..%2f..%2f..%2fsettings.py",
        "console/{digest}/%2e%2e/docs.js",
        "console/{digest}/",
        "console/{digest}",
        "console/",
    ],
)
def test_no_other_file_is_there(client, console, path):
    """What is not one of the files, by whatever spelling, is 404, and nobody keeps that."""
    response = client.get("/" + path.format(digest=console.digest))
    assert (response.status_code, response.headers["cache-control"]) == (404, "no-store")


def test_files_count_under_one_name(client, console):
    """However many files and versions there are, metrics have one series for them."""
    assert client.get(f"/console/{console.digest}/dom.js").status_code == 200
    route = "/console/{digest}/{path}"
    assert (
        client.counts()[f'nextitem_http_request_duration_seconds_count{{code="200",method="GET",route="{route}"}}'] >= 1
    )


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
        ("GZIP", True),
        ("deflate,gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, br", False),
        ("identity", False),
        ("x-gzip-like", False),
        ("", False),
    ],
)
def test_compressed_for_who_takes_it(client, console, accepted, expected):
    """Compressed once at the start, and sent so to who takes gzip."""
    assert takes_gzip(accepted) == expected
    headers = {"accept-encoding": accepted}
    response = client.get(f"/console/{console.digest}/style.css", headers=headers)
    assert (response.headers.get("content-encoding") == "gzip") == expected
    assert response.content == console.files["style.css"].content


def test_a_change_of_any_file_changes_every_address(console, monkeypatch, tmp_path):
    """A browser never mixes the files of two versions."""
    for path in console.files:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(console.files[path].content)
    monkeypatch.setattr("service.http.console_files.FOLDER", tmp_path)
    assert ConsoleFiles.read().digest == console.digest
    (tmp_path / "vendor" / "htm.mjs").write_text("export default 1")
    assert ConsoleFiles.read().digest != console.digest


def test_weight(client, console):
    """The first view and all of it, as they are sent; and what there is of it to read."""
    sizes = {path: len(file.gzipped) for path, file in console.files.items()}
    sizes["index.html"] = len(client.get("/").content)  # not compressed
    first = list_first_view()
    assert sum(sizes[path] for path in first) <= FIRST_VIEW_BYTES
    assert len(first) + API_REQUESTS <= FIRST_VIEW_REQUESTS
    assert sum(sizes.values()) <= WHOLE_BYTES
    assert sum(len(path.read_text().splitlines()) for path in OWN) <= OWN_LINES
    assert all(gzip.decompress(file.gzipped) == file.content for file in console.files.values())


def test_first_view_is_asked_for_at_once(client, console):
    """The page names all modules that the first view needs, so that none waits for another to be read."""
    page = client.get("/").text
    named = set(re.findall(rf'(?:href|src)="console/{console.digest}/([^"]+)"', page))
    assert named == list_first_view() - {"index.html"}


def test_every_import_is_a_file_of_ours():
    """By a relative path: a browser knows no package names, and nothing comes from elsewhere."""
    for path in [*OWN, *VENDOR.glob("*.mjs")]:
        text = path.read_text()
        names = re.findall(r"""(?:from\s*|import\s*\(?\s*)["']([^"']+)["']""", text) if path.suffix != ".css" else []
        for name in names:
            assert name.startswith("./"), (path.name, name)
            assert (path.parent / name).is_file()
        if path in OWN:
            assert not re.search(r"""["'(`](?:https?:)?//""", text), path.name


@pytest.mark.parametrize("path", [path for path in OWN if path.suffix != ".css"], ids=lambda path: path.name)
def test_code_makes_no_markup_and_keeps_nothing(path):
    """Titles and ids come from strangers: they become text. Nothing is left in the browser, least of all a key."""
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|createContextualFragment|srcdoc",
        r"\beval\b|new Function|setTimeout\(\s*[\"'`]",
        r"localStorage|indexedDB|document\.cookie|pushState|replaceState|serviceWorker|sendBeacon",
        *([] if path.name == "api.js" else ["sessionStorage"]),  # where a key is kept for the tab, if that is ticked
    )
    for pattern in forbidden:
        assert re.findall(pattern, path.read_text()) == []
    linked = re.findall(r"\b(?:href|src|action|formaction)=\$\{([^}]*)", path.read_text())
    assert linked in ([], ["`#${name"])  # the names of views, which are in the code


def test_vendored_files_are_those_on_the_list():
    """Each file has the sum that `make vendor` wrote, none is missing or more, and each package has its licence."""
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert {path.name for path in VENDOR.iterdir()} == {*listed, "SHA256SUMS", "packages.json"}
    for name, digest in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    packages = json.loads((VENDOR / "packages.json").read_text())
    assert {target for pinned in packages.values() for target in pinned["files"].values()} == set(listed)
    for name, pinned in packages.items():
        assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", pinned["integrity"])
        assert f"{name}.LICENSE" in pinned["files"].values()


def read_colours():
    """The pairs of colours, light and dark, by name."""
    found = re.findall(
        r"--([a-z-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\);", (CONSOLE / "style.css").read_text()
    )
    return {name: colours for name, *colours in found}


def luminance(colour):
    """The relative luminance of a colour in hex (WCAG 2.2)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_contrast(text, ground):
    """Every colour of text on what it stands on, light and dark: AA."""
    colours = read_colours()
    for one, other in zip(colours[text], colours[ground], strict=True):
        darker, lighter = sorted((luminance(one), luminance(other)))
        assert (lighter + 0.05) / (darker + 0.05) >= CONTRAST, (one, other)


def test_colours_are_named_in_one_place():
    """All but shadows: so that no colour misses its partner for the other scheme."""
    rest = re.sub(r":root \{.*?\n\}", "", (CONSOLE / "style.css").read_text(), flags=re.DOTALL)
    assert re.findall(r"#[0-9a-f]{3,8}\b(?=[;, )])|\b(?:hsl|oklch)\(", rest) == []
    assert len(read_colours()) >= 12
