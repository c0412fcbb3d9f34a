"""What a worker starts with when the champion cannot be used."""

from dataclasses import replace

import pytest

from benchmarks.reliability.swaps.traffic import copy_version, make_root
from model.contract.atomic_files import write_whole
from model.contract.bundle import open_bundle
from model.contract.deployment.changes import use
from model.contract.deployment.document import DEPLOYMENT, read_deployment
from model.contract.deployment.writer import change_deployment
from service.deployment import choices
from service.deployment.choices import list_choices, open_current, open_first
from service.deployment.probe import ProbeBook, Verdict
from service.deployment.startup import load_first
from service.errors import ModelRefused, StartFailed
from service.settings import Settings


@pytest.fixture
def root(tmp_path):
    """A folder whose champions were red, then blue, then green."""
    root = make_root(tmp_path / "bundles")
    folder = copy_version(root, "blue", "green")
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"blue"', '"green"'))
    for version in ("blue", "green"):
        change_deployment(root, use(version, why="test"), action="use", by="cli:test", force=True)
    return root


@pytest.fixture(autouse=True)
def tried(monkeypatch):
    """The versions that were tried in a process of their own, which finds all of them good."""
    versions = []

    def probe(_settings, bundle, *, measures=False):  # noqa: ARG001 - as the real one
        versions.append(bundle.manifest.version)
        return Verdict(None, "", "CPUExecutionProvider")

    monkeypatch.setattr(choices, "probe", probe)
    return versions


def load(root, handed_over=None, **settings):
    """The version that a worker starts with."""
    loaded = load_first(Settings(bundle=root, provider="cpu", **settings), ProbeBook(None), handed_over)
    loaded.thread.shutdown()
    return loaded.model.manifest.version


def test_the_champion_is_first(root, tried):
    """Where there is a choice it is tried first."""
    assert list_choices(read_deployment(root)) == ["green", "blue", "red"]
    assert load(root) == "green"
    assert tried == ["green"]


def test_without_a_usable_champion_the_one_before_serves(root, caplog):
    """Then the one before that: the log says which and why."""
    (root / "green" / "network.onnx").write_bytes(b"")
    assert load(root) == "blue"
    (root / "blue" / "golden.json").unlink()
    assert load(root) == "red"
    said = [(record.getMessage(), record.fields["code"]) for record in caplog.records if hasattr(record, "fields")]
    assert ("Version green cannot be used", "corrupt") in said
    assert ("Version blue cannot be used", "missing") in said
    assert caplog.messages[-1] == "Using version red instead of green"
    bundle, verdict = open_first(Settings(bundle=root), ProbeBook(None))
    with bundle:
        assert (bundle.manifest.version, verdict.provider) == ("red", "CPUExecutionProvider")


def test_without_any_usable_version_the_service_does_not_start(root):
    """The champion's fault is the one that is told."""
    for version in ("green", "blue", "red"):
        (root / version / "network.onnx").write_bytes(b"")
    with pytest.raises(ModelRefused) as refused:
        load(root)
    assert (refused.value.code, "network.onnx" in str(refused.value)) == ("corrupt", True)
    with pytest.raises(StartFailed):
        open_first(Settings(bundle=root), ProbeBook(None))


def test_a_restarted_worker_falls_back_to_what_was_handed_over(root):
    """Its files are open, though nothing in the folder can be used, not even the deployment."""
    with open_bundle(root / "red") as handed_over:
        for version in ("green", "blue"):
            (root / version / "network.onnx").write_bytes(b"")
        (root / "red" / "manifest.json").unlink()
        assert load(root, handed_over) == "red"
        (root / DEPLOYMENT).write_text("{")
        assert load(root, handed_over) == "red"
        with pytest.raises(StartFailed):
            load(root)


def test_who_follows_nothing_restarts_with_what_was_handed_over(root):
    """So that no two workers differ; else the champion of now counts."""
    with open_bundle(root / "red") as handed_over:
        assert load(root, handed_over, follow_s=0) == "red"
        assert load(root, handed_over) == "green"


def test_the_pinned_bundle_serves_and_no_other(root):
    """A version that was replaced under its name is not the one that was deployed."""
    deployment = read_deployment(root)
    assert open_current(Settings(bundle=root)).manifest.version == "green"
    wrong = {**deployment.digests, "green": "0" * 64}
    write_whole(root / DEPLOYMENT, replace(deployment, digests=wrong).to_bytes())
    with pytest.raises(ModelRefused) as refused:
        open_current(Settings(bundle=root))
    assert refused.value.code == "digest"
