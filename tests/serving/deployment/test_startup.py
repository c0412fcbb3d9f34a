"""What a worker starts with when the champion cannot be used."""

import math
from dataclasses import replace

import pytest

from benchmarks.reliability.swaps.traffic import copy_version, make_root
from model.contract.atomic_files import write_whole
from model.contract.bundle import open_bundle
from model.contract.deployment.changes import set_candidate, use
from model.contract.deployment.document import DEPLOYMENT, read_deployment
from model.contract.deployment.writer import change_deployment
from service.deployment import choices, startup
from service.deployment.choices import list_choices, open_current, open_first, open_version
from service.deployment.probe import ProbeBook, Verdict, describe_files
from service.deployment.startup import load_candidate, load_first
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

    def probe(_settings, bundle):
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


def test_a_refused_bundle_is_closed(root, monkeypatch):
    """Else the supervisor would keep its files open, and their room on the disk, for as long as it runs."""
    opened = []

    def refuse(_settings, bundle):
        opened.append(bundle)
        return Verdict("golden", "why")

    monkeypatch.setattr(choices, "probe", refuse)
    with pytest.raises(ModelRefused):
        open_first(Settings(bundle=root), ProbeBook(None))
    with pytest.raises(ModelRefused):
        open_first(Settings(bundle=root / "red"), ProbeBook(None))
    assert [bundle.manifest.version for bundle in opened] == ["green", "blue", "red", "red"]
    assert not any(bundle.descriptors for bundle in opened)


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


class Canary:
    """A folder whose champion is green and whose candidate is red, and what the workers have found of red."""

    def __init__(self, root, folder, *, mode="canary"):
        self.settings = Settings(bundle=root, provider="cpu")
        share = 0.2 if mode == "canary" else 0.0
        change_deployment(root, set_candidate("red", mode=mode, share=share), action="candidate", by="t", force=True)
        folder.mkdir()
        self.book = ProbeBook(folder)
        self.champion = load_first(self.settings, self.book)
        self.champion.thread.shutdown()

    def find(self, held_s):
        """A probe found it good, and a load to hold the GIL for so long."""
        with open_version(self.settings.bundle, "red", pin=None) as bundle:
            self.book.note(bundle, Verdict(None, "", held_s=held_s, files=describe_files(bundle)))

    @property
    def code(self):
        """What the book says of it."""
        with open_version(self.settings.bundle, "red", pin=None) as bundle:
            verdict = self.book.find(bundle, since_s=-math.inf)
            return verdict and verdict.code

    def load(self, champion=None):
        """The version that is loaded at the start."""
        loaded = load_candidate(self.settings, self.book, champion or self.champion.model)
        if loaded is None:
            return None
        loaded.thread.shutdown()
        return loaded.model.manifest.version


def test_a_candidate_that_would_hold_up_answers_is_loaded_at_the_start(root, tmp_path):
    """Once a worker has tried it, and beside its champion; smaller ones are loaded later, and unknown ones, too."""
    canary = Canary(root, tmp_path / "instance")
    assert canary.load() is None
    for held_s in (None, 0.04):
        canary.find(held_s)
        assert canary.load() is None
    canary.find(0.298)
    assert canary.load() == "red"
    assert canary.load(load_first(Settings(bundle=root / "blue", provider="cpu"), ProbeBook(None)).model) is None
    (root / DEPLOYMENT).write_text("{")
    assert canary.load() is None


def test_a_candidate_in_shadow_is_not_loaded_at_the_start(root, tmp_path):
    """Workers have nothing to do with it."""
    canary = Canary(root, tmp_path / "instance", mode="shadow")
    canary.find(0.298)
    assert canary.load() is None


@pytest.mark.parametrize(
    ("fault", "code"),
    [(ModelRefused("memory", "why"), "memory"), (StartFailed("why"), "engine"), (SystemExit("killed"), "crashed")],
)
def test_a_candidate_that_cannot_be_loaded_keeps_no_worker_from_starting(root, tmp_path, monkeypatch, fault, code):
    """It starts without it, or the next one does, and the book says why until the candidate is tried again."""
    canary = Canary(root, tmp_path / "instance")
    canary.find(0.298)

    def fail(*_):
        assert canary.code == "crashed"  # what the next worker finds if this one ends here
        raise fault

    monkeypatch.setattr(startup, "load_configured", fail)
    if isinstance(fault, StartFailed):
        assert canary.load() is None
    else:
        with pytest.raises(SystemExit):
            canary.load()
    assert canary.code == code
    monkeypatch.undo()
    assert canary.load() is None
    canary.find(0.298)
    assert canary.load() == "red"
