"""`nextitem-serve models`: what it shows and changes, with and without workers to see; and killed at each step."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from redis import Redis

from benchmarks.harness.plain_versions import write_version
from model.contract.bundle import point_current
from model.contract.deployment.document import DEPLOYMENT, Deployment, read_deployment
from model.contract.deployment.journal import JOURNAL, UNDONE, read_journal, verify_journal
from model.contract.deployment.live_scores import write_live_scores
from model.contract.deployment.live_sums import LiveScores, Series, Sums
from model.contract.deployment.writer import LOCK
from service.cli import main
from service.deployment_commands import workers as seeing
from service.deployment_commands.commands import CONFLICT, REFUSED, WRONG_CALL
from service.store.redis_keys import WORKERS


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A bundle folder with three versions and another catalogue's; v1 answers by `current`."""
    for name in ("BUNDLE", "REDIS_URL", "DATA_DIR"):
        monkeypatch.delenv(f"NEXTITEM_{name}", raising=False)
    folder = tmp_path / "bundles"
    for version in ("v1", "v2", "v3"):
        write_version(folder, version)
    write_version(folder, "other", ("x", "y", "z"))
    point_current(folder, "v1")
    return folder


@pytest.fixture
def command(root, tmp_path, capsys):
    """Run a command on that folder: its status, and what it wrote to stdout and stderr. Without a store to see."""

    def run(*words, store=None):
        seen = ["--redis-url", store] if store else ["--data-dir", str(tmp_path / "no-store")]
        status = main(["models", "--bundle", str(root), *seen, *words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def report(embedded_valkey, root):
    """Say what a worker serves, as a worker does; the store's address is `report.url`."""

    class Report:
        url = embedded_valkey

        def __call__(self, worker, generation, champion, *, folder=root, refused=None, age_s=0.0, **more):
            at_ms = int((time.time() - age_s) * 1000)
            if refused:
                refused = {"version": refused, "code": "corrupt", "since": "2026-11-22T10:00:00Z"}
            state = {"generation": generation, "champion": champion, "candidate": None, "refused": refused}
            state |= {"folder_id": read_deployment(folder).folder_id if folder else "", **more}
            with Redis.from_url(self.url) as client:
                client.hset(WORKERS, worker, json.dumps({**state, "at_ms": at_ms}))

    with Redis.from_url(embedded_valkey) as client:
        client.delete(WORKERS)
    return Report()


def test_a_model_lives(command, root):
    """Use, candidate, share, promote, roll back: each says who answers, and the journal tells all of it."""
    assert command("use", "v2", "--why", "better") == (0, "Now generation 1: v2 answers, nobody is on trial\n", "")
    assert "v3 is on trial in shadow" in command("candidate", "v3")[1]
    assert "v3 is on trial and answers 5.00% of users" in command("share", "5%")[1]
    assert "generation 4: v3 answers" in command("promote")[1]
    assert "generation 5: v2 answers" in command("rollback", "--why", "worse")[1]
    assert "held" in command("status")[1]
    assert command("resume")[0] == command("terms", "--min-trials", "100", "--path", "shadow")[0] == 0
    deployment = read_deployment(root)
    assert (deployment.generation, deployment.champion, deployment.previous) == (7, "v2", "v3")
    assert (deployment.trial.auto, deployment.trial.min_trials, deployment.trial.path) == (True, 100, "shadow")
    assert deployment.by.startswith("cli:")
    journal = command("journal")[1]
    assert [line.split()[3] for line in journal.splitlines()[1:]] == [
        *("use", "candidate", "share", "promote", "rollback", "resume", "terms"),
    ]
    assert "worse" in journal
    assert command("journal", "--verify") == (0, "The journal is whole.\n", "")
    assert [json.loads(line)["action"] for line in command("journal", "--json", "--last", "2")[1].splitlines()] == [
        *("resume", "terms"),
    ]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("use", "v9"), REFUSED, "v9"),
        (("use", "v1"), REFUSED, "champion already"),
        (("use", "other"), REFUSED, "0% of the champion's"),
        (("candidate", "v1"), REFUSED, "its own candidate"),
        (("share", "0.5"), REFUSED, "no candidate"),
        (("promote",), REFUSED, "no candidate"),
        (("return",), REFUSED, "no candidate"),
        (("rollback",), REFUSED, "no earlier champion"),
        (("resume",), REFUSED, "already"),
        (("use", "v2", "--if-generation", "3"), CONFLICT, "generation 0, not 3"),
        (("candidate", "v2", "--mode", "canary"), WRONG_CALL, "share"),
        (("candidate", "v2", "--mode", "shadow", "--share", "0.1"), WRONG_CALL, "share"),
        (("terms",), WRONG_CALL, "at least one"),
        (("terms", "--alpha", "3"), REFUSED, "alpha"),
        (("terms", "--min-hours", "nan"), REFUSED, "JSON"),
    ],
)
def test_what_is_refused_changes_nothing(command, root, words, status, said):
    """The exit status says why: refused, a wrong call, or somebody else was there first."""
    got, out, err = command(*words)
    assert (got, out) == (status, "")
    assert said in err
    assert not (root / DEPLOYMENT).exists()
    assert not (root / JOURNAL).exists()


@pytest.mark.parametrize(
    "words",
    [
        ("use",),
        ("use", "../v1"),
        ("share", "1.5"),
        ("share", "nan"),
        ("use", "v2", "--why", "x" * 201),
        ("use", "v2", "--why", "\x1b[2J"),
        ("prune", "--older-than", "30"),
        ("prune", "--keep", "-1"),
        ("status", "--timeout-s", "inf"),
        ("unknown",),
        ("use", "v2", "--dry"),
    ],
)
def test_wrong_calls_end_with_2(command, root, words):
    """Argparse says what is wrong with them."""
    with pytest.raises(SystemExit, match="2"):
        command(*words)
    assert not (root / DEPLOYMENT).exists()


def test_a_folder_must_hold_all_versions(root, capsys, monkeypatch):
    """One version has no deployment; without --bundle the environment counts."""
    assert main(["models", "--bundle", str(root / "v1"), "list"]) == WRONG_CALL
    assert main(["models", "list"]) == WRONG_CALL
    assert "--bundle is required" in capsys.readouterr().err
    monkeypatch.setenv("NEXTITEM_BUNDLE", str(root))
    assert main(["models", "list", "--json"]) == 0
    assert {one["version"]: one["role"] for one in json.loads(capsys.readouterr().out)} == {
        "v1": "champion",
        "v2": None,
        "v3": None,
        "other": None,
    }
    assert main(["models", "--bundle", str(root / "nowhere"), "use", "v1"]) == REFUSED
    assert "No such file" in capsys.readouterr().err


def test_a_dry_run_changes_nothing(command, root):
    """It says what would stand."""
    before = sorted(path.name for path in root.iterdir())
    status, out, _ = command("use", "v2", "--dry-run", "--wait")
    assert (status, "It would be generation 1: v2 answers" in out) == (0, True)
    assert sorted(path.name for path in root.iterdir()) == before


def test_another_catalogue_is_used_by_force(command, root):
    """The journal says that it was forced."""
    assert command("use", "other", "--force")[0] == 0
    [entry] = read_journal(root)
    assert (entry["forced"], entry["known"]) == (True, 0.0)
    assert command("rollback")[0] == 0


def test_the_list_has_scores_and_workers(command, root, report):
    """Role, offline and live NDCG@10, and how many workers serve each version."""
    command("use", "v2")
    report("a:1", 1, "v2")
    report("a:2", 1, "v2", candidate="v3")
    report("b:1", 0, "v1", age_s=61)  # nobody: it died
    totals = {Series("champion", "v2"): Sums(10, 4, 1.0, 1.0, 0), Series("candidate", "v2"): Sums(10, 4, 3.0, 1.0, 0)}
    write_live_scores(root, LiveScores(totals=totals))
    listed = {one["version"]: one for one in json.loads(command("list", "--json", store=report.url)[1])}
    assert [listed[version]["workers"] for version in ("v1", "v2", "v3")] == [0, 2, 1]
    assert (listed["v2"]["role"], listed["v2"]["ndcg_at_10"]) == ("champion", 0.1)
    assert (listed["v2"]["live_ndcg_at_10"], listed["v2"]["live_trials"]) == (0.2, 20)
    assert listed["v1"]["live_ndcg_at_10"] is None
    (root / "live.json").write_text("{")
    (root / "v3" / "manifest.json").write_text("{")
    status, out, err = command("list")
    assert status == 0
    assert "manifest.json is not JSON" in out
    assert "?" in out
    assert "live.json is not JSON" in err
    assert "workers cannot be seen" in err


def test_status_shows_each_worker(command, root, report):
    """Exit status 1 if one refused what the deployment names; a `current` of another version is told."""
    command("use", "v2")
    point_current(root, "v3")
    report("a:1", 1, "v2")
    report("a:2", 0, "v1", refused="v9")  # of another deployment
    status, out, err = command("status", store=report.url)
    assert (status, [line.split() for line in out.splitlines()[-2:]]) == (
        0,
        [["a:1", "1", "v2", "-", "-"], ["a:2", "0", "v1", "-", "v9", "(corrupt)"]],
    )
    assert "models use v3" in err
    report("a:2", 0, "v1", refused="v2")
    status, out, err = command("status", "--json", store=report.url)
    assert (status, "1 of 2 workers refused" in err) == (REFUSED, True)
    assert json.loads(out)["workers"][1]["refused"]["code"] == "corrupt"


def test_status_shows_a_breaker_that_is_open(command, report):
    """The candidate is loaded there, and the champion answers its users for a while."""
    command("use", "v2")
    command("candidate", "v3", "--share", "5%")
    report("a:1", 2, "v2", candidate="v3", breaker_open=True)
    report("a:2", 2, "v2", candidate="v3", breaker_open=False)
    status, out, _ = command("status", store=report.url)
    assert (status, [line.split() for line in out.splitlines()[-2:]]) == (
        0,
        [["a:1", "2", "v2", "v3", "(breaker", "open)", "-"], ["a:2", "2", "v2", "v3", "-"]],
    )
    told = json.loads(command("status", "--json", store=report.url)[1])
    assert [worker["breaker_open"] for worker in told["workers"]] == [True, False]


def test_another_folder_on_the_store_is_not_mixed_up(command, report, tmp_path, monkeypatch):
    """Its workers and those of single bundles are counted, not shown or waited for; what they use is not pruned."""
    other = tmp_path / "other-bundles"
    write_version(other, "v1", ("x", "y"))
    point_current(other, "v1")
    command("use", "v2")
    report("a:1", 1, "v2")
    report("b:1", 1, "v1", folder=other, refused="v2")
    report("c:1", 0, "v3", folder=None)
    status, out, _ = command("status", "--json", store=report.url)
    told = json.loads(out)
    assert (status, [worker["worker"] for worker in told["workers"]], told["other_workers"]) == (0, ["a:1"], 2)
    assert "2 workers of other bundle folders" in command("status", store=report.url)[1]
    listed = {one["version"]: one["workers"] for one in json.loads(command("list", "--json", store=report.url)[1])}
    assert listed == {"v1": 0, "v2": 1, "v3": 0, "other": 0}
    assert command("status", "--wait", "--timeout-s", "5", store=report.url)[0] == 0
    monkeypatch.setattr("model.contract.deployment.versions.YOUNG_S", -1.0)
    assert command("prune", "--keep", "0", "--dry-run", store=report.url)[1] == "Would remove other\n"
    report("a:1", 1, "v2", also_serve=["other"])
    assert command("prune", "--keep", "0", "--dry-run", store=report.url)[1] == "There is nothing to remove.\n"


def test_waiting_for_all_workers(command, report):
    """A change waits until all are there; a worker that dies does not hold it up for longer than it counts."""
    report("a:1", 0, "v1")
    report("a:2", 0, "v1")
    report("a:3", 0, "v1", age_s=59.5)
    followers = [
        threading.Timer(delay_s, report, (worker, 1, "v2")) for delay_s, worker in ((0.2, "a:1"), (0.6, "a:2"))
    ]
    for follower in followers:
        follower.start()
    status, _, err = command("use", "v2", "--wait", store=report.url)
    assert (status, err) == (0, "All 2 workers that report have followed.\n")
    assert command("status", "--wait", store=report.url)[0] == 0


def test_waiting_ends_with_a_refusal(command, report):
    """An old refusal of the same version does not count until its worker reports anew."""
    report("a:1", 0, "v1", refused="v2", age_s=5)
    again = threading.Timer(0.8, report, ("a:1", 0, "v1"), {"refused": "v2"})
    again.start()
    began_s = time.monotonic()
    status, _, err = command("use", "v2", "--wait", store=report.url)
    assert time.monotonic() - began_s >= 0.8
    assert (status, "workers refused it (corrupt)" in err) == (REFUSED, True)


def test_waiting_ends_after_its_time(command, report):
    """Workers that do not follow are counted, and the change stands."""
    report("a:1", 0, "v1")
    status, out, err = command("use", "v2", "--wait", "--timeout-s", "0.5", store=report.url)
    assert (status, "Now generation 1" in out) == (REFUSED, True)
    assert "not all of 1 workers" in err
    assert command("status", "--wait", "--timeout-s", "0.5", store=report.url)[0] == REFUSED


@pytest.mark.parametrize("store", [None, "redis://127.0.0.1:1/0", "reports"])
def test_a_rollback_needs_no_store(command, report, store, monkeypatch):
    """Without a store, with a dead one, with one that nobody reports to: at once, and it says so."""
    monkeypatch.setattr(seeing, "PATIENCE_S", 0.5)
    url = report.url if store == "reports" else store
    command("use", "v2")
    status, out, err = command("rollback", "--wait", store=url)
    assert (status, "v1 answers" in out) == (0, True)
    assert "The change stands. Nobody waited" in err
    assert command("status", "--wait", "--timeout-s", "0.5", store=url)[0] == REFUSED


def test_pruning_spares_what_workers_use(command, root, report, monkeypatch):
    """Versions in use and named stay; where workers cannot be seen, nothing is removed unless forced."""
    command("use", "v2")
    command("use", "v1")
    monkeypatch.setattr("model.contract.deployment.versions.YOUNG_S", -1.0)
    report("a:1", 2, "v3")
    status, _, err = command("prune")
    assert (status, "--force" in err) == (REFUSED, True)
    assert command("prune", "--older-than", "1h", store=report.url)[1] == "There is nothing to remove.\n"
    assert command("prune", "--dry-run", store=report.url)[1] == "Would remove other\n"
    assert command("prune", "--json", store=report.url)[1] == '[\n "other"\n]\n'
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["v1", "v2", "v3"]
    assert command("prune", "--force", "--keep", "0")[1] == "Removed v3\n"
    assert verify_journal(root) is None


def test_a_model_that_reads_more_than_is_remembered_is_told(command, monkeypatch):
    """The service's setting may be another; the environment's counts."""
    monkeypatch.setenv("NEXTITEM_HISTORY_LENGTH", "5")
    assert "v2 reads 10 items, but --history-length is 5" in command("use", "v2")[2]


def test_a_changed_journal_is_found(command, root):
    """A line that was changed ends the verification with 1."""
    command("use", "v2")
    command("use", "v3")
    (root / JOURNAL).write_bytes((root / JOURNAL).read_bytes().replace(b"v2", b"v4", 1))
    status, out, err = command("journal", "--verify")
    assert (status, out, "line 2" in err) == (REFUSED, "", True)


KILLING = textwrap.dedent("""
    import os, signal, sys
    from model.contract.deployment import journal, writer
    from service.cli import main

    module, name, when = {
        "before journal": (journal, "append", "before"),
        "after journal": (journal, "append", "after"),
        "before replace": (os, "replace", "before"),
        "after replace": (os, "replace", "after"),
    }[sys.argv[1]]
    real = getattr(module, name)

    def killing(*arguments, **options):
        if when == "after":
            real(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, name, killing)
    main(sys.argv[2:])
""")
TIMES = int(os.environ.get("KILL_TIMES", "1"))


@pytest.mark.parametrize("step", ["before journal", "after journal", "before replace", "after replace"])
def test_killed_at_each_step(command, root, step):
    """Kill -9 of the command: the old deployment or the new one stands, and the next command cleans up."""
    for version, next_version in (("v2", "v3"), ("v1", "v2"), ("v3", "v1"))[: max(1, min(TIMES, 3))]:
        before: Deployment | None = read_deployment(root)
        words = ["models", "--bundle", str(root), "use", version]
        killed = subprocess.run([sys.executable, "-c", KILLING, step, *words], check=False, timeout=120)
        assert killed.returncode == -signal.SIGKILL
        stands = read_deployment(root)
        assert stands.champion == version if step == "after replace" else stands == before
        assert command("journal", "--verify")[0] == 0
        assert command("use", next_version)[0] == 0
        undone = [entry["action"] for entry in read_journal(root)].count(UNDONE)
        assert (undone > 0) == (step in ("after journal", "before replace"))
        assert command("journal", "--verify")[0] == 0
        hidden = {path.name for path in root.iterdir() if path.name.startswith(".")}
        assert hidden == {LOCK}
        assert (root / "current").read_text() == f"{next_version}\n"
