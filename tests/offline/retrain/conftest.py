"""A small log with drift: users walk round a ring of items, to which some are added late."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from model.contract.deployment.document import read_deployment
from training.fit.fit import fit
from training.publish.publish import publish_run
from training.recipe import make_recipe
from training.runs.run import Run

RING = [f"i{number:02}" for number in range(24)]
LATE = [f"a{number:02}" for number in range(6)]
"""Their ids come before all others, so that every index moves."""
MOMENT = 300
"""The user with whom the late items arrive."""
USERS = 500
GONE = ("gone-user", "gone-item")
"""A user who is erased after the champion was trained, and the item that only this one met."""
RECIPE = {
    "model": {"name": "sasrec", "max_length": 6, "width": 16, "layers": 1, "heads": 1, "dropout": 0.0},
    "train": {
        "device": "cpu",
        "epochs": 24,
        "batch_size": 32,
        "learning_rate": 1e-2,
        "warmup_steps": 5,
        "keep": "last",
    },
}


def walk():
    """Events (user, item, seconds) in the order of time: each user walks eight places on."""
    events = []
    for user in range(USERS):
        ring = RING if user < MOMENT else [item for pair in zip(RING, LATE * 4, strict=True) for item in pair]
        ring = list(dict.fromkeys(ring))
        start = user * 7 % len(ring)
        events += [
            (f"u{user:03}", ring[(start + step) % len(ring)], 1_700_000_000 + 1000 * user + 300 * step)
            for step in range(8)
        ]
    return sorted(events, key=lambda event: event[2])


def write_csv(path, events):
    path.write_text("user,item,timestamp\n" + "".join(f"{user},{item},{time}\n" for user, item, time in events))
    return path


def write_archive(folder, events):
    """The same as the archive of a service."""
    folder.mkdir()
    lines = "".join(
        json.dumps({"user_id": user, "event_id": f"e{row}", "item_id": item, "timestamp": time * 1000, "type": "view"})
        + "\n"
        for row, (user, item, time) in enumerate(events)
    )
    (folder / "00-1-0-2-0.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


class Place:
    """Runs and bundles with a champion, and the logs beside them."""

    GONE, LATE = GONE, LATE

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs, self.bundles = folder, folder / "runs", folder / "bundles"

    @property
    def deployment(self):
        return read_deployment(self.bundles)

    def write_csv(self, name, events):
        return write_csv(self.folder / name, events)

    def write_archive(self, name, events):
        return write_archive(self.folder / name, events)

    def list_files(self):
        """Every file with its content."""
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def events():
    """The whole log."""
    return walk()


@pytest.fixture(scope="session")
def trained_place(tmp_path_factory, events):
    """A champion that was trained before the late items came; not to be written to."""
    place = Place(tmp_path_factory.mktemp("champion"))
    older = [event for event in events if int(event[0][1:]) < MOMENT]
    gone = [(GONE[0], item, 1_700_000_000 + step) for step, item in enumerate(["i00", GONE[1], "i01", "i02"])]
    log = write_csv(place.folder / "older.csv", [*older, *gone])
    fit(make_recipe(RECIPE), log, place.runs / "first", resume=False, items=None, stop=lambda: False, baselines=())
    publish_run(Run.open(place.runs / "first"), place.bundles, None, neighbours=log, rules=log, similar=True)
    return place


@pytest.fixture
def place(trained_place, tmp_path):
    """A copy of it."""
    shutil.copytree(trained_place.folder, tmp_path / "place")
    return Place(tmp_path / "place")
