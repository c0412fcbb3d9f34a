"""Log -> fit -> publish -> serve -> answers, by the commands alone; the tutorial's tour is what runs."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def read_tour():
    """The tutorial's console block: commands with the line that each prints."""
    [block] = re.findall(r"```console\n(.*?)```", TUTORIAL.read_text(), flags=re.DOTALL)
    lines = block.strip().splitlines()
    return [(command.removeprefix("$ "), printed) for command, printed in zip(lines[::2], lines[1::2], strict=True)]


@pytest.fixture
def serve(bundles, start_service):
    """A function that starts nextitem-serve with that log's model, and gives (process, URL)."""
    return lambda: start_service(bundles)


def test_tutorial_tour_prints_what_it_says(serve):
    """Every curl of the tutorial prints the line below it, `…` standing for anything."""
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
    assert process.wait(60) == 0


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
