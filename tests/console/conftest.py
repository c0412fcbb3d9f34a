"""The console in a real browser, before real services. Without Debian's Chromium or playwright these tests skip."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.harness.bundles import seal
from benchmarks.harness.processes import read_url
from model.contract.attributes import gather_attributes
from model.contract.bundle import ATTRIBUTES, MANIFEST, METADATA, SESSIONS, locate_bundle, read_bundle
from model.contract.deployment.changes import set_candidate, set_share, use
from model.contract.deployment.document import read_deployment
from model.contract.deployment.live_scores import write_live_scores
from model.contract.deployment.live_sums import LiveScores, Series, Sums, TrialFigures
from model.contract.deployment.writer import change_deployment
from model.contract.sessions import Sessions
from tests.console.films import FILMS

TINY = Path(__file__).parents[1] / "serving" / "bundle"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
]
PATIENCE_MS = 20_000  # machines may be busy
OLD, CHAMPION, CANDIDATE = "20260901T081500-bert4rec", "20261101T074200-bert4rec", "20261121T101500-bert4rec"
WATCH = """
window.seen = {violations: [], animations: 0};
document.addEventListener("securitypolicyviolation", (event) => {
  window.seen.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
const animate = Element.prototype.animate;
Element.prototype.animate = function (...given) { window.seen.animations += 1; return animate.apply(this, given); };
"""

if os.environ.get("CI") == "true" and not all(map(find_spec, ("playwright", "axe_playwright_python"))):
    raise pytest.UsageError("playwright or axe-playwright-python is not installed: CI must run these tests")


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
    """The tiny bundle with neighbours and other metadata, an object for each of its twenty items, to filter by, too.

    With `similar` it has a graph of similar items.
    """

    def make(metadata: list[dict[str, Any]], *, similar: bool = False) -> Path:
        folder = tmp_path_factory.mktemp("bundle") / "titles"
        shutil.copytree(locate_bundle(TINY), folder)
        vocabulary = read_bundle(TINY).vocabulary
        known = dict(zip(vocabulary.item_ids, metadata, strict=True))
        sessions = Sessions(
            item_count=20,
            starts=np.arange(0, 41, 4),
            items=np.concatenate([np.sort((np.arange(4) * 3 + first) % 20 + 1) for first in range(10)]).astype(
                np.int32
            ),
            moments=np.zeros(10, dtype=np.int64),
        )
        made = {
            METADATA: "".join(json.dumps(item) + "\n" for item in metadata).encode(),
            ATTRIBUTES: gather_attributes(vocabulary, known).to_bytes(),
            SESSIONS: sessions.to_bytes(),
            **({file.name: file.read_bytes() for file in (TINY.parent / "similar").iterdir()} if similar else {}),
        }
        for name, content in made.items():
            (folder / name).write_bytes(content)
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        seal(folder, files=dict.fromkeys([*files, *made]))
        return folder

    return make


@pytest.fixture(scope="module")
def serve(short_folder: Path) -> Iterator[Callable[..., str]]:
    """Start services with options over a bundle; returns their addresses. `module` runs it, with its own options."""
    with ExitStack() as stack:

        def start(bundle: Path, *options: str, module: tuple[str, ...] = ("service.cli",)) -> str:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=short_folder, ignore_cleanup_errors=True))
            command = [sys.executable, "-m", *module, "--bundle", str(bundle), "--port", "0"]
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
    return serve(make_bundle(FILMS))


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


def score(root: Path) -> None:
    """What a judge would have written of a trial under way."""
    champion, candidate = Series("champion", CHAMPION), Series("candidate", CANDIDATE)
    write_live_scores(
        root,
        LiveScores(
            totals={champion: Sums(5210, 552, 301.4, 240.0, 12), candidate: Sums(5210, 604, 338.2, 262.0, 3)},
            offline={champion: 0.0612, candidate: 0.0671},
            trial={"candidate": CANDIDATE, "champion": CHAMPION, "began_ms": int(time.time() * 1000) - 7_200_000},
            figures=TrialFigures({"promote": 7.41, "return": 0.02}, (0.0071, -0.0004, 0.0146), 5210),
            verdicts={"canary": 1},
            lag_s=1.2,
            at_s=time.time(),
        ),
    )


@pytest.fixture(scope="module")
def root(make_bundle: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle folder of three versions, one of them on trial."""
    made, folder = make_bundle(FILMS, similar=True), tmp_path_factory.mktemp("bundles")
    for version, ndcg in ((OLD, 0.0588), (CHAMPION, 0.0612), (CANDIDATE, 0.0671)):
        shutil.copytree(made, folder / version)
        manifest = json.loads((made / "manifest.json").read_text())
        trained_at = f"{version[:4]}-{version[4:6]}-{version[6:8]}T{version[9:11]}:{version[11:13]}:00Z"
        manifest |= {"version": version, "trained_at": trained_at, "metrics": {"NDCG@10": ndcg, "HR@10": 2 * ndcg}}
        (folder / version / "manifest.json").write_text(json.dumps(manifest))
    (folder / "current").write_text(OLD)
    return folder


@pytest.fixture(scope="module")
def url(serve: Callable[..., str], root: Path) -> str:
    """A service of that folder."""
    return serve(root)


@pytest.fixture
def trial(root: Path, url: str) -> Path:  # noqa: ARG001 - the service reads the folder
    """The champion has a candidate in canary, and the judge has written what it saw."""
    now = read_deployment(root)
    if now.champion != CHAMPION:
        change_deployment(root, use(CHAMPION), action="use", by="cli", why="better offline")
    if now.candidate is None:
        change_deployment(root, set_candidate(CANDIDATE), action="candidate", by="key:7f3a2c", why="retrained")
        change_deployment(root, set_share(0.05), action="canary", by="judge", why="nothing against it in shadow")
    score(root)
    return root


@pytest.fixture(scope="session")
def await_archiver() -> Callable[[str], None]:
    """Wait for the first run of a service's archiver, which takes all events out of the log; the next is in an hour."""

    def wait(url: str) -> None:
        deadline_s = time.monotonic() + 60
        while not httpx.get(f"{url}/status", timeout=30).json()["store"]["archive"]["last_success_at"]:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)

    return wait


@pytest.fixture(scope="module")
def traffic(url: str, await_archiver: Callable[[str], None]) -> None:
    """Some users who did things, and some answers."""
    await_archiver(url)
    for user, count in (("405", 6), ("13", 3), ("655", 2)):
        events = [{"user_id": user, "item_id": f"i0{1 + at % 8}", "event_id": f"e{at}"} for at in range(count)]
        assert httpx.post(f"{url}/events", json={"events": events}).status_code == 200
    for number in range(30):
        httpx.post(f"{url}/recommend", json={"user_id": f"{number}", "items": ["i01"]}).raise_for_status()


@pytest.fixture
def view(open_console: Callable[..., Any]) -> Callable[..., Any]:
    """Open a view and wait until it shows what it has."""
    from playwright.sync_api import expect  # noqa: PLC0415 - it may be missing

    shown = {
        "try": "ol.ranked > li >> nth=9",
        "compare": ".column >> nth=2",
        "users": ".people li >> nth=0",
        "items": "#search",
        "models": "section:has(#versions) tbody tr >> nth=0",
        "live": ".legend li >> nth=0",
        "health": "section:has(#store) dd >> nth=0",
    }

    def open_view(url: str, name: str, **options: Any) -> Any:
        page = open_console(url, fragment=f"#{name}", **options)
        expect(page.locator(shown[name])).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        return page

    return open_view


@pytest.fixture
def keep_picture() -> Callable[..., None]:
    """Keep a picture of the whole page in the folder that CONSOLE_PICTURES names, where somebody wants to look."""

    def keep(page: Any, name: str) -> None:
        if folder := os.environ.get("CONSOLE_PICTURES"):
            page.screenshot(path=f"{folder}/console-{name}.png", full_page=True)

    return keep
