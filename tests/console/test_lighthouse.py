"""What Lighthouse says of each view's accessibility: `make lighthouse` fetches it and runs this, the suite skips it."""

import json
import shutil
import subprocess

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
)
LIGHTHOUSE = shutil.which("lighthouse")
pytestmark = pytest.mark.skipif(LIGHTHOUSE is None, reason="lighthouse is not on PATH: run `make lighthouse`")

LEAST = 95
VIEWS = ("try", "compare", "users", "items", "models", "live", "health")
FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-quic --disable-background-networking"


@pytest.mark.usefixtures("traffic", "trial")
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_is_accessible(url, name, require_tool, tmp_path, monkeypatch):
    """As its reports count: of 100, with what it marks down."""
    monkeypatch.setenv("CHROME_PATH", require_tool("chromium"))
    report = tmp_path / "report.json"
    options = ["--only-categories=accessibility", "--output=json", f"--output-path={report}", "--quiet"]
    subprocess.run([str(LIGHTHOUSE), f"{url}/#{name}", *options, f"--chrome-flags={FLAGS}"], check=True)
    found = json.loads(report.read_text())
    assert found["finalDisplayedUrl"] == f"{url}/#{name}"
    marked_down = [audit["title"] for audit in found["audits"].values() if audit["score"] not in (1, None)]
    score = 100 * found["categories"]["accessibility"]["score"]
    print(f"{name}: Lighthouse {found['lighthouseVersion']}, accessibility {score:.0f} {marked_down}")  # noqa: T201 - the figure
    assert score >= LEAST, marked_down
