"""A new champion whose engine fails at once is taken back by the judge: once, with a line in the journal."""

import json
import time

import pytest

from model.contract.deployment.changes import hold, resume, use
from model.contract.deployment.document import read_deployment
from model.contract.deployment.journal import last_entry, verify_journal
from model.contract.deployment.writer import change_deployment
from service.judge import champion_guard
from service.store.redis_keys import WORKERS

FIRST, SECOND = "20261121T101500-tiny", "20261122T101500-other"


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Workers are looked at whenever events were read."""
    monkeypatch.setattr(champion_guard, "LOOK_S", 0.0)


@pytest.fixture
def report(raw, root):
    """Say, as a worker does, that it went back from the champion, or refused something else."""

    def write(worker="i:1", **given):
        now = read_deployment(root)
        refused = {"version": now.champion, "code": "failing", "since": "", "generation": now.generation}
        state = {"generation": now.generation - 1, "champion": FIRST, "candidate": None}
        state |= {"folder_id": now.folder_id, "at_ms": int(time.time() * 1000)}
        state |= {name: given.pop(name) for name in ("folder_id",) if name in given}
        raw.hset(WORKERS, worker, json.dumps({**state, "refused": {**refused, **given}}))

    return write


def deploy(root, change):
    """Change the deployment, as a person does."""
    return change_deployment(root, change, action="test", by="test")


@pytest.fixture
def judge(with_judge):
    """Let the judge look, so many times; what it counted."""

    def look(times=1, **options):
        async def scenario(bench):
            for _ in range(times):
                await bench.judge.step()
            return bench.scores

        return with_judge(scenario, **options)

    return look


def test_a_champion_that_workers_went_back_from_is_taken_back(judge, root, report, caplog):
    """To the one before, with the reason in the journal; the judge decides nothing more until it is resumed."""
    deploy(root, use(SECOND))
    judge()
    assert read_deployment(root).champion == SECOND  # nobody complains
    report("i:1")
    report("i:2")
    with caplog.at_level("INFO"):
        scores = judge(times=3)
    deployment = read_deployment(root)
    assert (deployment.generation, deployment.champion, deployment.trial.auto) == (2, FIRST, False)
    entry = last_entry(root)
    assert entry is not None
    assert (entry["by"], entry["action"], entry["evidence"]) == ("judge", "rollback", {"failing_workers": 2})
    assert "guardrail: its engine failed as soon as it answered, and 2 workers went back" in entry["why"]
    assert verify_journal(root) is None
    assert scores.verdicts == {"rollback": 1}
    assert caplog.text.count(f"Verdict: rollback {SECOND}") == 1


def test_it_happens_once(judge, root, report):
    """Workers that still report it change nothing, though the judge is resumed and the version made champion again."""
    deploy(root, use(SECOND))
    report()
    judge()
    deploy(root, resume())
    assert judge(times=2).verdicts == {"rollback": 1}
    assert read_deployment(root).champion == FIRST
    deploy(root, use(SECOND))
    judge(times=2)
    deployment = read_deployment(root)
    assert (deployment.generation, deployment.champion) == (4, SECOND)
    report()  # it fails again, in this generation
    assert judge().verdicts == {"rollback": 2}
    assert read_deployment(root).champion == FIRST


@pytest.mark.parametrize(
    "given",
    [{"code": "corrupt"}, {"version": "another"}, {"generation": 0}, {"folder_id": "00bb"}, {"folder_id": ""}],
    ids=str,
)
def test_what_is_no_failure_of_this_champion_changes_nothing(judge, root, report, given):
    """A refusal before it answered, of another version, of an earlier deployment, or of another bundle folder."""
    deploy(root, use(SECOND))
    report(**given)
    assert judge().verdicts == {}
    assert read_deployment(root).champion == SECOND


def test_a_change_of_something_else_does_not_save_it(judge, root, report):
    """It went back in a generation of this champion, and the deployment was changed since."""
    deploy(root, use(SECOND))
    report()
    deploy(root, hold())
    deploy(root, resume())
    assert judge().verdicts == {"rollback": 1}


def test_a_held_judge_and_a_dry_run_only_tell(judge, root, report, caplog):
    """Each says it once."""
    deploy(root, use(SECOND))
    report()
    with caplog.at_level("INFO"):
        judge(times=3, dry_run=True)
        deploy(root, hold())
        report()
        judge(times=3)
    assert read_deployment(root).champion == SECOND
    assert caplog.text.count(f"Would rollback {SECOND}: guardrail") == 1
    assert caplog.text.count(f"The judge is held and does not roll back {SECOND}") == 1


def test_where_no_champion_was_before_it_is_told_once(judge, root, report, caplog):
    """A folder without deployment.json: there is nothing to go back to."""
    report()
    judge(times=3)
    assert caplog.text.count(f"The verdict rollback {FIRST} cannot be carried out: no earlier champion") == 1
    assert read_deployment(root).generation == 0
