"""The console in a real browser, before real services. Without Debian's Chromium or playwright these tests skip."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.harness.processes import read_url
from model.contract.bundle import describe_file, locate_bundle
from model.contract.sessions import Sessions

TINY = Path(__file__).parents[1] / "serving" / "bundle"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
]
PATIENCE_MS = 20_000  # machines may be busy
TITLES = (
    *("Star Wars", "Star Trek", "Starship Troopers", "Toy Story", "Alien", "Fargo", "Contact", "Casablanca", "Heat"),
    *("Vertigo", "Psycho", "Rear Window", "Jaws", "Rocky", "Amadeus", "Gandhi", "Clueless", "Scream", "Emma", "Babe"),
)
WATCH = """
window.seen = {violations: [], animations: 0};
document.addEventListener("securitypolicyviolation", (event) => {
  window.seen.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
const animate = Element.prototype.animate;
Element.prototype.animate = function (...given) { window.seen.animations += 1; return animate.apply(this, given); };
"""

if os.environ.get("CI") == "true" and find_spec("playwright") is None:
    raise pytest.UsageError("playwright is not installed: CI must run these tests")


@pytest.fixture(scope="module")
def chromium(require_tool: Callable[[str], str]) -> Iterator[Any]:
    """A browser without a window. Not for longer than a file's tests: playwright keeps an event loop in this thread."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it may be missing

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require_tool("chromium"), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The tiny bundle with neighbours and other metadata, an object for each of its twenty items."""

    def make(metadata: list[dict[str, Any]]) -> Path:
        folder = tmp_path_factory.mktemp("bundle") / "titles"
        shutil.copytree(locate_bundle(TINY), folder)
        sessions = Sessions(
            item_count=20,
            starts=np.arange(0, 41, 4),
            items=np.concatenate([np.sort((np.arange(4) * 3 + first) % 20 + 1) for first in range(10)]).astype(
                np.int32
            ),
            moments=np.zeros(10, dtype=np.int64),
        )
        manifest = json.loads((folder / "manifest.json").read_text())
        for name, content in {
            "metadata.jsonl": "".join(json.dumps(item) + "\n" for item in metadata).encode(),
            "sessions.npy": sessions.to_bytes(),
        }.items():
            (folder / name).write_bytes(content)
            described = describe_file(content)
            manifest["files"][name] = {"sha256": described.sha256, "bytes": described.bytes}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make


@pytest.fixture(scope="module")
def serve(short_folder: Path) -> Iterator[Callable[..., str]]:
    """Start services with options over a bundle; returns their addresses."""
    with ExitStack() as stack:

        def start(bundle: Path, *options: str) -> str:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=short_folder, ignore_cleanup_errors=True))
            command = [sys.executable, "-m", "service.cli", "--bundle", str(bundle), "--port", "0"]
            command += ["--data-dir", f"{folder}/data", "--drain-delay-s", "0", *options]
            log = Path(folder) / "log"
            with log.open("wb") as output:
                process = subprocess.Popen(command, stderr=output)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            return _await_url(process, log)

        yield start


def _await_url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Where a service answers, once its log says so."""
    with log.open() as lines:
        while process.poll() is None:
            line = lines.readline()
            if line.endswith("\n") and (url := read_url(json.loads(line)["message"])):
                return url
    raise AssertionError(f"the service did not start: {log.read_text()}")


@pytest.fixture(scope="module")
def service_url(serve: Callable[..., str], make_bundle: Callable[..., Path]) -> str:
    """A service over twenty films."""
    films = [
        {"title": title, "year": 1970 + number, "genres": ["Drama", "Sci-Fi"][: number % 3]}
        for number, title in enumerate(TITLES)
    ]
    return serve(make_bundle(films))


@pytest.fixture
def open_console(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open the console of a service; options are those of a browser context.

    At the end nothing was asked of anybody else, the console of the browser has no error, and no policy was violated,
    unless the test expects it: `expected` takes what the browser may say.
    """
    opened: list[SimpleNamespace] = []

    def open_page(url: str, *, fragment: str = "", expected: tuple[str, ...] = (), **options: Any) -> Any:
        context = chromium.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(WATCH)
        page = context.new_page()
        elsewhere: list[str] = []
        complaints: list[str] = []

        def note(request: Any) -> None:
            if not request.url.startswith((url, "data:")):
                elsewhere.append(request.url)

        def dismiss(dialog: Any) -> None:
            complaints.append("a dialog")
            dialog.dismiss()

        def hear(message: Any) -> None:
            if message.type != "log":
                complaints.append(message.text)

        context.on("request", note)
        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", dismiss)
        opened.append(SimpleNamespace(page=page, elsewhere=elsewhere, complaints=complaints, expected=expected))
        page.goto(f"{url}/{fragment}")
        return page

    yield open_page
    for seen in opened:
        assert seen.elsewhere == []
        assert [text for text in seen.complaints if not any(word in text for word in seen.expected)] == []
        assert seen.page.evaluate("window.seen.violations") == []
        seen.page.context.close()


@pytest.fixture
def remember(service_url: str) -> Callable[..., None]:
    """Store events of a user."""

    def send(user: str, *item_ids: str) -> None:
        events = [{"user_id": user, "item_id": item_id} for item_id in item_ids]
        receipt = httpx.post(f"{service_url}/events", json={"events": events}).json()
        assert receipt["accepted"] == len(item_ids)

    return send
