"""The judge's figures are the trainer's: events that were held out come in live, and score as in the test."""

import csv
import json
import shutil
import subprocess
import sys
from itertools import groupby

import httpx
import pytest

from model.contract.bundle import MANIFEST, locate_bundle
from model.contract.deployment.live_scores import read_live_scores
from model.contract.deployment.live_sums import Sums
from service.embedded.server import EmbeddedStore

PORTION = 100


def read_log(log):
    """The events of each user in order, as the service takes them: none from before 2001, so at twice their times."""
    with (log / "interactions.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (row["user"], int(row["timestamp"])))
    return [
        [
            {"user_id": user, "item_id": row["item"], "type": "rating", "timestamp": 2000 * int(row["timestamp"])}
            for row in events
        ]
        for user, events in groupby(rows, key=lambda row: row["user"])
    ]


def send(url, events):
    """Have events accepted."""
    for start in range(0, len(events), PORTION):
        answer = httpx.post(f"{url}/events", json={"events": events[start : start + PORTION]}, timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == len(events[start : start + PORTION]), answer.text


def judge(root, store_url):
    """Judge what the log holds. What was counted so far."""
    command = ["judge", "--once", "--bundle", str(root), "--redis-url", store_url]
    ended = subprocess.run([sys.executable, "-m", "service.cli", *command], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    scores = read_live_scores(root)
    assert scores is not None
    [sums] = scores.totals.values()
    return sums


@pytest.mark.timeout(300)
def test_held_out_events_score_as_in_the_trainers_test(log, bundles, start_service, tmp_path, monkeypatch):
    """HR@10 and NDCG@10 are the same within one user."""
    root = shutil.copytree(bundles, tmp_path / "bundles")
    users = read_log(log)
    with EmbeddedStore(tmp_path / "store") as store:
        monkeypatch.setenv("NEXTITEM_REDIS_URL", store.url)
        _, url = start_service(root)
        send(url, [event for events in users for event in events[:-1]])
        before = judge(root, store.url)
        send(url, [events[-1] for events in users])
        after = judge(root, store.url)
    live = Sums(after.trials - before.trials, after.hits - before.hits, after.ndcg - before.ndcg)
    offline = json.loads((locate_bundle(root) / MANIFEST).read_bytes())["metrics"]
    assert live.trials == pytest.approx(len(users), abs=1)
    assert live.hits == pytest.approx(offline["hr@10"] * len(users), abs=1)
    assert live.ndcg == pytest.approx(offline["ndcg@10"] * len(users), abs=1)
    assert live.hits > 0
