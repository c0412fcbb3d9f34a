"""Random commands, some of them killed between any two syscalls: what every reader may rely on holds throughout.

DEPLOYMENT_SEQUENCES=500 runs as many sequences; the suite runs few.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from benchmarks.harness.killed_calls import killed_after
from benchmarks.harness.plain_versions import write_version
from model.contract.bundle import CURRENT
from model.contract.deployment import changes, versions
from model.contract.deployment.document import DEPLOYMENT, DeploymentRefused, read_deployment
from model.contract.deployment.journal import read_journal, verify_journal
from model.contract.deployment.writer import change_deployment, prune
from model.contract.manifest import BundleError

SEQUENCES = int(os.environ.get("DEPLOYMENT_SEQUENCES", "12"))
STEPS = 25
VERSIONS = [f"v{number}" for number in range(1, 9)]

SHARES = st.sampled_from([0.01, 0.05, 0.2, 1.0])
COMMANDS = st.one_of(
    st.tuples(st.just("use"), st.sampled_from(VERSIONS)),
    st.tuples(st.just("candidate"), st.sampled_from(VERSIONS), st.sampled_from(["shadow", "canary"]), SHARES),
    st.tuples(st.just("share"), st.just(0.0) | SHARES),
    st.tuples(st.just("terms"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["promote", "return", "rollback", "hold", "resume"])),
)


def make_change(action, *values):
    """The change of a command."""
    match action:
        case "use":
            return changes.use(values[0], why="random")
        case "candidate":
            return changes.set_candidate(values[0], mode=values[1], share=values[2])
        case "share":
            return changes.set_share(values[0])
        case "terms":
            return changes.set_terms({"min_trials": values[0]})
    return {
        "promote": changes.promote,
        "return": changes.return_candidate,
        "rollback": changes.roll_back,
        "hold": changes.hold,
        "resume": changes.resume,
    }[action]()


def read_or_none(root):
    """The deployment that stands, or None before the first."""
    try:
        return read_deployment(root)
    except BundleError:
        return None


class Commands(RuleBasedStateMachine):
    """One bundle folder, its commands, and processes that die."""

    @initialize()
    def begin(self):
        """A folder with half of the versions."""
        self.root = Path(tempfile.mkdtemp())
        for version in VERSIONS[:4]:
            write_version(self.root, version)
        self.seen = None

    def teardown(self):
        """Nothing stays."""
        shutil.rmtree(self.root, ignore_errors=True)

    @rule(command=COMMANDS, passing=st.none() | st.integers(0, 60))
    def change(self, command, passing):
        """A command is done, refused, or killed; then the old deployment stands, or the new one, whole."""
        before, wanted, failed = read_or_none(self.root), None, False
        change = make_change(*command)
        with killed_after(passing) as countdown:
            try:
                wanted = change_deployment(self.root, change, action=command[0], by="cli:test", why="random")
            except (DeploymentRefused, BundleError):
                failed = True
        after = read_or_none(self.root)
        if failed:
            assert after == before
        elif not countdown.killed:
            assert after == wanted
            self.check_finished(after)
        elif after != before:
            assert after.generation > (before.generation if before else 0)
            assert after.by == "cli:test"

    @rule(version=st.sampled_from(VERSIONS))
    def publish(self, version):
        """A trainer writes a version."""
        write_version(self.root, version)

    @rule(
        keep=st.integers(0, 3),
        in_use=st.sets(st.sampled_from(VERSIONS), max_size=2),
        young=st.booleans(),
        passing=st.none() | st.integers(0, 40),
    )
    def prune(self, keep, in_use, young, passing):
        """Versions named, in use, of the last champions, and young ones stay; killed anywhere, too."""
        now = read_or_none(self.root)
        if now is None:
            return
        there = {version.name for version in versions.list_versions(self.root)}
        champions = list(dict.fromkeys(entry.champion for entry in reversed(now.history)))[:keep]
        spared = there if young else there & {*now.named, *in_use, *champions}
        clock = SimpleNamespace(time=lambda: time.time() + (0 if young else 7200))
        with patch.object(versions, "time", clock), killed_after(passing) as countdown:
            removed = prune(self.root, keep=keep, in_use=in_use)
        left = {version.name for version in versions.list_versions(self.root)}
        assert spared <= left
        if not countdown.killed:
            assert left == there - {*removed} == spared
            assert not list(self.root.glob(".*.pruned"))

    def check_finished(self, after):
        """Nothing is left aside, `current` agrees, and the journal's last line is this change's."""
        assert not list(self.root.glob(".*.partial"))
        assert (self.root / CURRENT).read_text() == f"{after.champion}\n"
        *_, last = read_journal(self.root)
        assert (last["generation"], last["by"]) == (after.generation, "cli:test")

    @invariant()
    def holds(self):
        """Readable, ordered, verified; what is named is there."""
        if not hasattr(self, "root"):
            return
        now = read_or_none(self.root)
        assert verify_journal(self.root) is None
        if now is None:
            assert self.seen is None
            assert not (self.root / DEPLOYMENT).exists()
            return
        assert now.generation >= (self.seen.generation if self.seen else 0)
        if self.seen is not None and now.generation == self.seen.generation and now.generation > 0:
            assert now == self.seen
        assert all((self.root / version / "manifest.json").is_file() for version in now.named)
        now.check()
        self.seen = now


@pytest.mark.timeout(60 + SEQUENCES)
def test_random_commands_killed_anywhere():
    """No sequence of them leaves anything that a reader cannot use."""
    run_state_machine_as_test(
        Commands,
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
