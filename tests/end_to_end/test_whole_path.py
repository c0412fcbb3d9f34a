"""Log -> fit -> publish -> serve -> answers, by the commands alone; the README's tour is what runs."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

README = Path(__file__).parents[2] / "README.md"
START_LIMIT_S = 60


def read_tour():
    """The README's console block: commands with the line that each prints."""
    [block] = re.findall(r"```console\n(.*?)```", README.read_text(), flags=re.DOTALL)
    lines = block.strip().splitlines()
    return [(command.removeprefix("$ "), printed) for command, printed in zip(lines[::2], lines[1::2], strict=True)]


@pytest.fixture
def serve(bundles, tmp_path):
    """A function that starts nextitem-serve on a free port and the same data folder, and gives (process, URL)."""
    started = []

    def start():
        log = (tmp_path / "serve.log").open("w+")
        process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "--bundle", bundles, "--data-dir", tmp_path / "data", "--port", "0"],
            stderr=log,
            stdout=log,
        )
        started.append((process, log))
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and process.poll() is None:
            log.seek(0)
            found = re.search(r"http://127\.0\.0\.1:\d+", log.read())
            if found:
                try:
                    if httpx.get(f"{found[0]}/health/ready").status_code == 200:
                        return process, found[0]
                except httpx.TransportError:
                    pass
            time.sleep(0.05)
        log.seek(0)
        raise AssertionError(log.read())

    yield start
    for process, log in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        log.close()


def test_readme_tour_prints_what_it_says(serve):
    """Every curl of the README prints the line below it, `…` standing for anything."""
    if shutil.which("curl") is None and not os.environ.get("CI"):
        pytest.skip("curl is not installed")
    process, url = serve()
    tour = read_tour()
    assert len(tour) >= 10
    for command, printed in tour:
        words = shlex.split(command.replace("localhost:8000", url.removeprefix("http://")))
        output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        pattern = ".+?".join(map(re.escape, printed.split("…")))
        assert re.fullmatch(pattern, output.strip()), f"{command}\nprinted {output}\nnot     {printed}"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_kill_loses_nothing_acknowledged(serve):
    """After kill -9 under writes a restart has every acknowledged event, in order, and answers from them."""
    process, url = serve()
    acknowledged = []
    for number in range(1, 121):
        event = {"event_id": f"e-{number}", "user_id": "u", "item_id": str(number), "timestamp": 1_700_000_000_000}
        if httpx.post(f"{url}/events", json=event).json()["accepted"] == 1:
            acknowledged.append(str(number))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, url = serve()
    kept = httpx.get(f"{url}/users/u/history").json()
    assert [event["item_id"] for event in kept["events"]] == acknowledged
    assert kept["version"] == len(acknowledged) == 120
    answer = httpx.post(f"{url}/recommend", json={"user_id": "u", "k": 20}).json()
    assert answer["source"] == "model"
    assert not {item["item_id"] for item in answer["items"]} & set(acknowledged)


def test_event_is_in_the_next_answer(serve):
    """The item that was recommended first is seen in the next moment and recommended no more."""
    _, url = serve()
    httpx.post(f"{url}/events", json={"user_id": "v", "item_id": "50"})
    for _ in range(5):
        first = httpx.post(f"{url}/recommend", json={"user_id": "v"}).json()
        best = first["items"][0]["item_id"]
        httpx.post(f"{url}/events", json={"user_id": "v", "item_id": best})
        second = httpx.post(f"{url}/recommend", json={"user_id": "v"}).json()
        assert second["history"]["version"] == first["history"]["version"] + 1
        assert best not in [item["item_id"] for item in second["items"]]
