"""The judge's figures are the trainer's: events that were held out come in live, and score as in the test."""

import csv
import json
import shutil
import subprocess
import sys
from itertools import groupby

import httpx
import numpy as np
import pytest

from model.contract.bundle import MANIFEST, locate_bundle
from model.contract.deployment.live_scores import read_live_scores
from model.contract.deployment.live_sums import Sums
from service.embedded.server import EmbeddedStore
from training.cli import main as train

ITEMS = 60
PORTION = 100


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Three hundred users who go through sixty items in order, but for every third step, which leads anywhere."""
    folder = tmp_path_factory.mktemp("chains")
    draw = np.random.default_rng(8)
    with (folder / "interactions.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "item", "timestamp", "value"])
        for user in range(300):
            item, met = int(draw.integers(ITEMS)), []
            for step in range(10):
                rows.writerow([user, item, 880_000_000 + step, 4])
                met.append(item)
                strangers = [other for other in range(ITEMS) if other not in met]
                following = (item + 1) % ITEMS
                item = following if draw.random() > 1 / 3 and following in strangers else int(draw.choice(strangers))
    return folder


@pytest.fixture(scope="module")
def bundles(log, tmp_path_factory):
    """The folder to which that log's model was published."""
    folder = tmp_path_factory.mktemp("chained")
    data, run, out = log / "interactions.csv", folder / "run", folder / "bundles"
    settings = ("--set", "train.epochs=6", "--set", "train.device=cpu")
    assert train(["fit", "bert4rec-small", "--data", str(data), "--out", str(run), *settings]) == 0
    assert train(["publish", str(run), "--out", str(out)]) == 0
    return out


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
    assert live.hits == pytest.approx(offline["HR@10"] * len(users), abs=1)
    assert live.ndcg == pytest.approx(offline["NDCG@10"] * len(users), abs=1)
    assert len(users) / 10 < live.hits < len(users)
