"""`nextitem-train retrain`: from a log to a candidate, or to a reason why not."""

import errno
import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from model.contract.bundle import read_bundle
from model.contract.deployment.changes import promote
from model.contract.deployment.document import DeploymentRefused
from model.contract.deployment.journal import read_journal
from model.contract.deployment.writer import change_deployment
from training.cli import main
from training.errors import TrainingError
from training.fit.interrupt import Interrupt
from training.retrain import command, retrain, retraining, rounds
from training.retrain.champion import find_champion
from training.retrain.order import Outcome
from training.runs.run import Run


@pytest.fixture
def call(place, capsys):
    """Call the command on the place. Returns its status, and what it printed and said."""

    def run(data, *more):
        code = main(
            ["retrain", "--data", str(data), "--bundle", str(place.bundles), "--runs", str(place.runs), *map(str, more)]
        )
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def archive(place, events):
    """The archive of a service, which holds the whole log but for the user who was erased."""
    return place.write_archive("archive", events)


def test_champion_gets_a_candidate(place, call, archive):
    """A dry run changes no file. Then the late items are known, the champion answers still, and the erased are gone."""
    before = place.list_files()
    code, out, err = call(archive, "--dry-run")
    assert (code, place.list_files()) == (0, before)
    assert "dry run" in out
    assert "6 items new since" in err
    assert "warm start, at most 6 epochs" in err

    champion = place.deployment.champion
    code, out, err = call(archive)
    assert code == 0, out + err
    deployment = place.deployment
    assert (deployment.champion, deployment.mode) == (champion, "shadow")
    assert deployment.candidate
    assert f"{deployment.candidate} is on trial in shadow" in out
    bundle = read_bundle(place.bundles / deployment.candidate)
    assert set(place.LATE) <= set(bundle.vocabulary.item_ids)
    assert bundle.sessions is not None
    assert bundle.rules is not None
    assert bundle.similar is not None
    lineage = bundle.manifest.lineage
    assert lineage
    assert (lineage["parent"], lineage["start"], lineage["metrics"]) == (champion, "warm", "before refit")
    assert lineage["offline"]["questions"] >= 300
    *_, entry = read_journal(place.bundles)
    assert (entry["action"], entry["by"]) == ("candidate", "retrain")
    assert entry["evidence"]["offline"] == lineage["offline"]

    folder = place.bundles / deployment.candidate
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert all(erased.encode() not in content for erased in place.GONE)
    assert place.GONE[1].encode() in (place.bundles / champion / "vocabulary.txt").read_bytes()

    [made] = place.runs.glob("retrain-*")
    report = (made / "report.md").read_text()
    assert "| candidate | 0." in report
    assert (made / "report.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((made / "retrain.json").read_text())
    assert document["items"] == {"carried": 24, "placed": 6, "drawn": 0, "gone": 1}
    assert json.loads((made / "whole" / "results.json").read_text())["measured"] == "before the refit"

    # The trial is not disturbed, and the next retraining begins with the recipe, not with the refit's few epochs.
    code, out, _ = call(archive)
    assert (code, "is on trial: wait for its verdict" in out) == (0, True)
    assert place.deployment == deployment
    change_deployment(place.bundles, promote(why="it is better"), action="promote", by="judge")
    parent = find_champion(place.bundles, place.runs)
    assert parent.run is not None
    assert parent.run.path == made / "whole"
    assert parent.run.read_measured_recipe().train.epochs == 24
    code, out, _ = call(archive)
    assert (code, "nothing to learn: 0 events are new" in out) == (0, True)


def test_shuffled_log_is_stopped(place, call, events):
    """Although popularity is news to the champion. Nothing is published, the report says why; --base comes first."""
    ring = np.array(sorted({item for _, item, _ in events}))
    popularity = 1 / np.arange(1, len(ring) + 1)
    items = np.random.default_rng(1).choice(ring, len(events), p=popularity / popularity.sum())
    shuffled = [(user, str(item), time) for (user, _, time), item in zip(events, items, strict=True)]
    newer = place.write_csv("newer.csv", shuffled[2000:])
    older = place.write_csv("base.csv", shuffled[:2500])
    bundles = {path: content for path, content in place.list_files().items() if place.bundles in path.parents}
    code, out, err = call(newer, "--base", older, "--start", "shrunk")
    assert code == 3, out + err
    assert "not good enough: histories are not shown to help it" in out
    assert "4,000 events" in err
    assert {path: path.read_bytes() for path in place.bundles.rglob("*") if path.is_file()} == bundles
    [made] = place.runs.glob("retrain-*")
    assert "not good enough" in (made / "report.md").read_text()
    assert not (made / "whole").exists()


def test_too_few_questions_and_nothing_new(call, place, events):
    """Neither is trained for."""
    code, out, _ = call(place.write_csv("few.csv", events[:2950]))
    assert (code, "too few to say" in out) == (3, True)
    code, out, _ = call(place.write_csv("old.csv", events[:2300]))
    assert (code, "nothing to learn" in out) == (0, True)
    assert not list(place.runs.glob("retrain-*"))


def test_need_is_what_the_champion_does_not_know(call, archive, monkeypatch):
    """The share of the newest day's events; below 5 % there is no need."""
    monkeypatch.setattr(retrain, "find_need", lambda *_: None)
    code, out, _ = call(archive, "--if-needed")
    assert (code, "no need" in out) == (0, True)
    monkeypatch.undo()
    code, _, err = call(archive, "--if-needed", "--dry-run")
    assert code == 0
    assert "of the newest day's events are of items that the champion does not know" in err


def test_wrong_calls(call, place, archive):
    """Each is refused with a sentence, and status 2."""
    assert call(archive, "--set", "model.width=32", "--dry-run")[2].count("another architecture") == 1
    lock = (place.runs / command.LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    code, _, err = call(archive)
    assert (code, "another retraining is under way" in err) == (2, True)
    lock.close()
    shutil.rmtree(place.runs / "first")
    code, _, err = call(archive)
    assert (code, "name its recipe with --recipe" in err) == (2, True)
    assert "none of the runs is that of" in call(archive, "--recipe", "sasrec-ml-1m", "--dry-run")[2]
    code, _, err = call(archive, "--recipe", "pop")
    assert (code, "can be served, and pop is none" in err) == (2, True)
    code, _, err = call(archive, "--recipe", "bpr-mf")
    assert (code, "can be served, and bpr-mf is none" in err) == (2, True)
    shutil.rmtree(place.bundles)
    code, _, err = call(archive)
    assert (code, "publish a first model" in err) == (2, True)


def test_every_goes_on_until_a_signal(call, archive, monkeypatch):
    """A failure is said, and the next round tries again."""
    rounds = []

    def fail_once(*_, **__):
        rounds.append(1)
        if len(rounds) == 1:
            raise TrainingError("the log is malformed")
        if len(rounds) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", "runs/retrain")
        if len(rounds) == 4:
            signal.raise_signal(signal.SIGTERM)
        return Outcome(0, "nothing to learn")

    monkeypatch.setattr(command, "retrain", fail_once)
    monkeypatch.setattr(command, "RETRY_S", 0.001)
    code, out, err = call(archive, "--every", "0.01s")
    assert (code, len(rounds)) == (143, 4)
    assert "the log is malformed" in err
    assert "runs/retrain: No space left on device" in err
    assert out.count("nothing to learn") == 2


def test_a_signal_ends_rounds_that_take_longer_than_their_period(call, archive, monkeypatch):
    """No further one begins, though none of them leaves any time to wait."""
    rounds = []

    def overrun(*_, **__):
        rounds.append(1)
        time.sleep(0.05)
        signal.raise_signal(signal.SIGTERM)
        return Outcome(0, "nothing to learn")

    monkeypatch.setattr(command, "retrain", overrun)
    code, _, _ = call(archive, "--every", "0.01s")
    assert (code, len(rounds)) == (143, 1)


@pytest.mark.parametrize("failing", ["write_report", "change_deployment"])
def test_the_run_of_a_bundle_that_was_written_stays(call, place, archive, monkeypatch, failing):
    """Whatever fails after that: without the run, nobody could begin where that version ended."""

    def fail(*_, **__):
        raise DeploymentRefused("why") if failing == "change_deployment" else OSError(errno.ENOSPC, "why")

    monkeypatch.setattr(retraining, failing, fail)
    code, out, err = call(archive)
    assert code in (1, 2), out + err
    assert "why" in err
    [written] = {path.name for path in place.bundles.iterdir() if path.is_dir()} - {place.deployment.champion}
    assert place.deployment.candidate == (None if failing == "change_deployment" else written)
    [run] = place.runs.glob("retrain-*/whole")
    assert Run(run).read_versions() == [written]


def test_a_probe_is_told_how_the_last_round_ended(call, place, archive, monkeypatch):
    """Well and in time is 0; failed, too long ago, unreadable and none yet are 1 and a sentence; without torch."""
    last = place.runs / rounds.LAST
    assert "no round of retrain --every has ended yet" in call(archive, "--check")[2]
    failures = [TrainingError("the disk is full"), None]

    def play(*_, **__):
        failure = failures.pop(0)
        if failure:
            raise failure
        signal.raise_signal(signal.SIGTERM)
        return Outcome(0, "nothing to learn")

    found = []
    monkeypatch.setattr(command, "retrain", play)
    monkeypatch.setattr(command, "RETRY_S", 0.001)
    noted = rounds.note_round

    def note(*words):
        noted(*words)
        found.append(call(archive, "--check")[::2])

    monkeypatch.setattr(command, "note_round", note)
    assert call(archive, "--every", "24h")[0] == 143
    assert [code for code, _ in found] == [1, 0]
    assert "the last round failed: the disk is full" in found[0][1]
    document = json.loads(last.read_text())
    for hours, code in ((71, 0), (73, 1)):
        last.write_text(json.dumps(document | {"ended_at_s": time.time() - hours * 3600}))
        assert call(archive, "--check")[0] == code
    assert "the last round ended 73 hours ago" in call(archive, "--check")[2]
    last.write_text("[]")
    assert "cannot be read" in call(archive, "--check")[2]
    probe = "import sys; from training.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    words = ["retrain", "--data", ".", "--bundle", ".", "--runs", str(place.runs), "--check"]
    assert subprocess.run([sys.executable, "-c", probe, *words], check=False, timeout=120).returncode == 0


def test_an_archive_without_events_is_no_failure(call, tmp_path):
    """It is one that was begun a moment ago. Another folder without segments is a wrong call."""
    folder = tmp_path / "archive"
    folder.mkdir()
    assert call(folder)[0] == 2
    (folder / "archive.lock").touch()
    code, out, _ = call(folder)
    assert (code, "holds no event yet" in out) == (0, True)


def test_stop_leaves_nothing_behind(call, place, archive, monkeypatch):
    """The first signal ends the training between two steps."""
    monkeypatch.setattr(Interrupt, "is_asked", lambda _: bool(list(place.runs.glob("retrain-*"))))
    code, _, err = call(archive)
    assert (code, "nothing was published" in err) == (130, True)
    assert not list(place.runs.glob("retrain-*"))
    assert place.deployment.candidate is None
