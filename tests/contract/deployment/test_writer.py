"""Changes of a deployment: killed at every call, two at once, over what was there before, and refused ones."""

import os
import subprocess
import sys
import textwrap

import pytest

from benchmarks.harness.killed_calls import killed_after
from benchmarks.harness.plain_versions import write_version
from model.contract.bundle import CURRENT, point_current
from model.contract.deployment import changes
from model.contract.deployment import writer as writing
from model.contract.deployment.document import (
    DEPLOYMENT,
    WHY_MAX,
    Deployment,
    DeploymentConflict,
    DeploymentMalformed,
    DeploymentRefused,
    find_stray_current,
    read_deployment,
)
from model.contract.deployment.journal import JOURNAL, UNDONE, read_journal, verify_journal
from model.contract.deployment.writer import change_deployment, hold_deployment
from model.contract.manifest import BundleError, BundleMissing


def use(root, version, **options):
    """Make a version the champion."""
    return change_deployment(root, changes.use(version), action="use", by="cli:test", **options)


def read_last(root):
    """The journal's last entry."""
    *_, last = read_journal(root)
    return last


def test_a_folder_begins_with_its_first_champion(root):
    """Neither deployment.json nor `current`: `use` begins; nothing else does."""
    with pytest.raises(BundleMissing):
        change_deployment(root, changes.set_candidate("v1"), action="candidate", by="cli:test")
    with pytest.raises(DeploymentRefused):
        change_deployment(root, changes.roll_back(), action="rollback", by="cli:test")
    begun = use(root, "v1", why="the first")
    assert (begun.generation, begun.champion, begun.previous) == (1, "v1", None)
    assert [(entry.generation, entry.champion, entry.why) for entry in begun.history] == [(1, "v1", "the first")]
    assert read_deployment(root) == begun
    assert (root / CURRENT).read_text() == "v1\n"
    assert verify_journal(root) is None


def test_a_folder_with_current_goes_on(root):
    """What `current` named is the history's first, and a rollback finds it."""
    point_current(root, "v1")
    changed = use(root, "v2")
    assert [(entry.generation, entry.champion, entry.by) for entry in changed.history] == [
        (0, "v1", "current"),
        (1, "v2", "cli:test"),
    ]
    back = change_deployment(root, changes.roll_back(), action="rollback", by="cli:test")
    assert (back.champion, back.previous, back.trial.auto) == ("v1", "v2", False)


@pytest.mark.parametrize("content", ["gone\n", "../v1\n", "", "\xff"])
def test_use_mends_a_current_that_names_nothing(root, content):
    """Where `current` leads nowhere, `use` begins a deployment."""
    (root / CURRENT).write_text(content)
    assert use(root, "v1").generation == 1
    assert (root / CURRENT).read_text() == "v1\n"


def test_killed_at_every_call(tmp_path):
    """The old deployment or the new one stands; the next change notes what was undone, and leaves nothing aside."""
    undone, calls = 0, 0
    while True:
        folder = tmp_path / str(calls)
        folder.mkdir()
        for version in ("v1", "v2", "v3"):
            write_version(folder, version)
        before = use(folder, "v1")
        with killed_after(calls) as countdown:
            use(folder, "v2")
        stands = read_deployment(folder)
        assert stands == before or (stands.generation, stands.champion) == (2, "v2")
        assert verify_journal(folder) is None
        killed_lines = [entry["generation"] for entry in read_journal(folder)]
        after = use(folder, "v3")
        assert after.generation == max(killed_lines) + 1
        assert verify_journal(folder) is None
        actions = [entry["action"] for entry in read_journal(folder)]
        assert actions in (["use"] * 2, ["use"] * 3, ["use", "use", UNDONE, "use"])
        assert (UNDONE in actions) == (killed_lines == [1, 2] and stands == before)
        assert not list(folder.glob(".*.partial"))
        assert (folder / CURRENT).read_text() == "v3\n"
        undone += UNDONE in actions
        calls += 1
        if not countdown.killed:
            break
    assert undone >= 5
    assert calls >= 20


def test_a_full_disk_changes_nothing(root, monkeypatch):
    """A line that does not fit is taken back, and the old deployment stands."""
    before = use(root, "v1")
    written = (root / JOURNAL).read_bytes()
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: real(descriptor, content[:10]))
    with pytest.raises(OSError, match="No space left"):
        use(root, "v2")
    monkeypatch.undo()
    assert (root / JOURNAL).read_bytes() == written
    assert read_deployment(root) == before
    assert use(root, "v2").generation == 2
    assert verify_journal(root) is None


def test_two_writers_at_once(root):
    """Processes that change the same folder take turns: every change has a generation of its own."""
    use(root, "v1")
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from model.contract.deployment import changes
        from model.contract.deployment.writer import change_deployment
        for number in range(20):
            change = changes.set_candidate("v2", mode="canary", share=(number + 1) / 100)
            change_deployment(Path(sys.argv[1]), change, action="candidate", by=f"cli:{sys.argv[2]}")
    """)
    writers = [subprocess.Popen([sys.executable, "-c", script, str(root), name]) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert read_deployment(root).generation == 41
    assert [entry["generation"] for entry in read_journal(root)] == [*range(1, 42)]
    assert verify_journal(root) is None


def test_a_writer_that_never_ends_is_waited_for_so_long(root, monkeypatch):
    """The lock's patience ends in a sentence, and nothing is changed."""
    monkeypatch.setattr(writing, "LOCK_PATIENCE_S", 0.1)
    with hold_deployment(root), pytest.raises(DeploymentConflict, match="somebody else"):
        use(root, "v1")
    assert not (root / DEPLOYMENT).exists()


def test_a_generation_not_seen_is_refused(root):
    """`if_generation` names the generation that was looked at."""
    use(root, "v1")
    use(root, "v2", if_generation=1)
    with pytest.raises(DeploymentConflict, match="of generation 2, not 1"):
        use(root, "v3", if_generation=1)
    assert read_deployment(root).champion == "v2"


def test_a_dry_run_writes_nothing(root):
    """It says what would stand, and needs no right to write."""
    before = sorted(path.name for path in root.iterdir())
    assert use(root, "v1", dry_run=True).generation == 1
    assert sorted(path.name for path in root.iterdir()) == before


def test_a_version_must_be_a_bundle(root):
    """Whoever takes a role must be there; a champion that is gone does not stop its successor."""
    use(root, "v1")
    with pytest.raises(BundleError):
        use(root, "v9")
    (root / "v1" / "manifest.json").unlink()
    assert use(root, "v2").champion == "v2"
    with pytest.raises(BundleError):
        change_deployment(root, changes.roll_back(), action="rollback", by="cli:test")


def test_a_version_replaced_under_its_name_is_refused(root):
    """Its digest was pinned when it was champion, and is remembered as long as the history."""
    for version in ("v1", "v2", "v3"):
        use(root, version)
    manifest = root / "v1" / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(DeploymentRefused, match="not the bundle that it was"):
        use(root, "v1")


def test_another_catalogue_is_refused_unless_forced(root):
    """Less than half of the champion's interactions known: refused unless forced. A rollback is never asked."""
    use(root, "v1")
    write_version(root, "other", ("x", "y", "z"))
    write_version(root, "half", ("a", "b", "x", "y"))
    with pytest.raises(DeploymentRefused, match="only 0%"):
        use(root, "other")
    with pytest.raises(DeploymentRefused, match="only 0%"):
        change_deployment(root, changes.set_candidate("other"), action="candidate", by="cli:test")
    use(root, "half")
    assert read_last(root)["known"] == 0.6667
    use(root, "other", force=True)
    assert (read_last(root)["known"], read_last(root)["forced"]) == (0.5, True)
    assert change_deployment(root, changes.roll_back(), action="rollback", by="cli:test").champion == "half"


def test_current_that_differs_is_found_and_mended(root):
    """deployment.json wins, and the next change makes `current` agree."""
    use(root, "v1")
    assert find_stray_current(root, read_deployment(root)) is None
    point_current(root, "v2")
    assert find_stray_current(root, read_deployment(root)) == "v2"
    change_deployment(root, changes.hold(), action="hold", by="cli:test")
    assert (root / CURRENT).read_text() == "v1\n"


def test_an_older_deployment_put_back_goes_on_in_order(root):
    """A restored deployment.json stands; the next generation comes after all that the journal knows."""
    use(root, "v1")
    old = (root / DEPLOYMENT).read_bytes()
    use(root, "v2")
    use(root, "v3")
    (root / DEPLOYMENT).write_bytes(old)
    assert use(root, "v4").generation == 4
    assert [entry["action"] for entry in read_journal(root)] == ["use", "use", "use", UNDONE, "use"]
    assert verify_journal(root) is None


def test_a_damaged_journal_stops_no_change(root):
    """It is named by the verification, and rollback works."""
    use(root, "v1")
    use(root, "v2")
    with (root / JOURNAL).open("ab") as journal:
        journal.write(b"damaged\n")
    assert change_deployment(root, changes.roll_back(), action="rollback", by="cli:test").champion == "v1"
    assert verify_journal(root) == "journal.jsonl: line 3 is not JSON"


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_journal_that_was_changed_does_not_verify(root, line):
    """A line changed, and a line removed, the last among them."""
    for version in ("v1", "v2", "v3"):
        use(root, version)
    lines = (root / JOURNAL).read_bytes().splitlines(keepends=True)
    (root / JOURNAL).write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    assert verify_journal(root) is not None
    changed = [*lines]
    changed[line] = changed[line].replace(b"cli:test", b"cli:else")
    (root / JOURNAL).write_bytes(b"".join(changed))
    assert (verify_journal(root) is None) == (line == 2)  # nothing names the last line's digest yet
    use(root, "v4")
    assert (verify_journal(root) is None) == (line == 2)


def test_long_and_hostile_words_stay_readable(root):
    """Twenty champions with the longest reasons fit; no terminal is told anything by them."""
    for number in range(40):
        use(root, f"v{number % 4 + 1}", why="\x1b[2J\n\ud800" + "\U0001f600" * 5000)
    assert len(read_deployment(root).history) == 20
    entry = read_last(root)
    assert len(entry["why"]) == WHY_MAX
    assert entry["why"].startswith(" [2J  ")
    assert verify_journal(root) is None


def test_evidence_too_long_for_a_line_is_left_out(root):
    """The change is made, and the line says so; what is no JSON changes nothing."""
    use(root, "v1", evidence={"long": "x" * 5000})
    assert read_last(root)["evidence"] == "too long for a line"
    with pytest.raises(DeploymentMalformed):
        use(root, "v2", evidence={"e": float("nan")})
    assert read_deployment(root).champion == "v1"


def test_what_no_reader_would_take_is_not_written(root):
    """Terms and shares out of their range are refused before the journal has a line."""
    use(root, "v1")
    for change in (
        changes.set_terms({"alpha": 2.0}),
        changes.set_terms({"min_trials": -1}),
        changes.set_terms({"max_days": float("inf")}),
        lambda now: Deployment(**{**vars(now), "share": 5.0}),
    ):
        with pytest.raises(DeploymentMalformed):
            change_deployment(root, change, action="terms", by="cli:test")
    assert len((root / JOURNAL).read_text().splitlines()) == 1


def test_a_journal_line_says_what_changed(root):
    """Fields and terms, before and after."""
    use(root, "v1")
    change = changes.set_candidate("v2", mode="canary", share=0.05)
    change_deployment(root, change, action="candidate", by="key:4be0643f1d98", why="newer", evidence={"e": 1.5})
    entry = read_last(root)
    assert (entry["action"], entry["by"], entry["why"]) == ("candidate", "key:4be0643f1d98", "newer")
    assert entry["from"] == {"candidate": None, "mode": "off", "share": 0.0}
    assert entry["to"] == {"candidate": "v2", "mode": "canary", "share": 0.05}
    assert (entry["evidence"], entry["known"]) == ({"e": 1.5}, 1.0)
    change_deployment(root, changes.set_terms({"min_trials": 9}), action="terms", by="cli:test")
    assert (read_last(root)["from"], read_last(root)["to"]) == ({"min_trials": 500}, {"min_trials": 9})
