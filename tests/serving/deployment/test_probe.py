"""Bundles tried in a process of their own, and what is remembered of that."""

import errno
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.harness.bundles import rename_items
from benchmarks.reliability.swaps.damage import DAMAGES
from benchmarks.reliability.swaps.traffic import copy_version, make_root
from model.contract.bundle import open_bundle
from service.deployment import probe as probes
from service.deployment.choices import open_version
from service.deployment.probe import ProbeBook, Verdict, probe
from service.errors import ModelRefused
from service.inference.model import load_model
from service.settings import Settings

BUNDLE = Path("tests/serving/bundle")
VARIANTS = 40
SETTINGS = Settings(bundle=BUNDLE, provider="cpu")


@pytest.fixture
def opened():
    """The tiny bundle, open."""
    with open_bundle(BUNDLE) as bundle:
        yield bundle


@pytest.fixture
def play(monkeypatch):
    """Have the probe's process run some words of Python instead."""

    def prepare(words):
        monkeypatch.setattr(probes, "_START", words)

    return prepare


def test_a_good_bundle_is_measured(opened):
    """It names the provider, and how long a load holds the GIL: some of it, but not minutes."""
    verdict = probe(SETTINGS, opened, measures=True)
    verdict.require()
    assert verdict.provider == "CPUExecutionProvider"
    assert verdict.held_s is not None
    assert 0 <= verdict.held_s < 60


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed"),
        ("import sys; sys.exit(7)", "crashed"),
        ('import sys; sys.stderr.write("what():  std::bad_alloc"); sys.exit(1)', "memory"),
        ("print('{\"code\": 1}')", "crashed"),
        ("import time; time.sleep(600)", "timeout"),
    ],
)
def test_a_probe_that_ends_badly_is_a_refusal(opened, play, words, code):
    """It crashed, hung, ran out of memory or said nothing of sense; nothing of it is left behind."""
    play(words)
    verdict = probe(SETTINGS, opened, time_limit_s=3.0)
    with pytest.raises(ModelRefused) as refused:
        verdict.require()
    assert refused.value.code == code


def test_a_graph_that_eats_the_memory_is_refused(tmp_path):
    """The process that tries it has a limit, and says that it was met."""
    pytest.importorskip("onnx")
    from benchmarks.reliability.swaps.damage import eat_memory  # noqa: PLC0415 - needs onnx

    root = make_root(tmp_path / "bundles")
    eat_memory(copy_version(root, "red", "eating"), random.Random(1))  # noqa: S311 - the same damage each time
    with open_bundle(root / "eating") as bundle:
        assert probe(SETTINGS, bundle).code == "memory"


@pytest.mark.parametrize(("limit", "soft"), [(1 << 32, 1 << 32), (1 << 34, 1 << 33)])
def test_the_limit_of_memory_stays_below_that_of_the_service(limit, soft):
    """A service whose own limit nobody but root may raise, as systemd sets it: the probe still gets one."""
    words = (
        "import resource as r; from service.deployment.probe_process import _limit_memory; "
        "r.setrlimit(r.RLIMIT_DATA, (1 << 33, 1 << 33)); "
        f"_limit_memory({limit}); print(*r.getrlimit(r.RLIMIT_DATA))"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(soft), str(1 << 33)]


def test_damaged_bundles_are_refused(tmp_path):
    """Forty of them, each by a code of its own kind, and none is taken."""
    root, draw, codes = make_root(tmp_path / "bundles"), random.Random(5), set()  # noqa: S311 - as above
    for number in range(VARIANTS):
        folder = copy_version(root, "red", f"damaged-{number}")
        DAMAGES[number % len(DAMAGES)](folder, draw)
        with pytest.raises(ModelRefused) as refused, open_version(root, folder.name, pin=None) as bundle:
            load_model(bundle, provider="cpu", threads=1, max_batch=4)
        codes.add(refused.value.code)
    assert codes >= {"corrupt", "missing", "golden", "format"}
    assert codes <= {"corrupt", "missing", "golden", "format", "engine"}


def test_a_version_that_was_replaced_under_its_name_is_refused(tmp_path, opened):
    """The deployment pins the digest of what it named."""
    root = make_root(tmp_path / "bundles")
    with pytest.raises(ModelRefused) as refused:
        open_version(root, "red", pin=opened.digest)
    assert refused.value.code == "digest"


@pytest.mark.parametrize("shared", [True, False])
def test_verdicts_are_shared_while_the_files_stay(tmp_path, shared):
    """A good one holds; a bad one is news once; both are forgotten when a file is written anew."""
    root = make_root(tmp_path / "bundles")
    (tmp_path / "instance").mkdir()
    book = ProbeBook(tmp_path / "instance" if shared else None)
    with open_bundle(root / "red") as bundle:
        assert book.find(bundle, since_s=0.0) is None
        good = Verdict(None, "", "CPU", 0.01, probes.describe_files(bundle), time.monotonic())
        book.note(bundle, good)
        assert book.find(bundle, since_s=time.monotonic()) == good
        bad = Verdict("golden", "why", files=probes.describe_files(bundle), at_s=time.monotonic())
        book.note(bundle, bad)
        assert book.find(bundle, since_s=bad.at_s - 1) == bad
        assert book.find(bundle, since_s=bad.at_s) is None
        book.note(bundle, good)
        os.utime(root / "red" / "network.onnx")
        assert book.find(bundle, since_s=0.0) is None


def test_a_verdict_without_a_measure_is_no_answer_to_who_needs_one(tmp_path, opened):
    """A worker's start tries without measuring: a later swap in place must not take that for no hold at all."""
    book = ProbeBook(tmp_path)
    unmeasured = Verdict(None, "", "CPU", files=probes.describe_files(opened))
    book.note(opened, unmeasured)
    assert book.find(opened, since_s=0.0) == unmeasured
    assert book.find(opened, since_s=0.0, measured=True) is None
    bad = Verdict("golden", "why", files=probes.describe_files(opened), at_s=1.0)
    book.note(opened, bad)
    assert book.find(opened, since_s=0.0, measured=True) == bad
    assert probe(SETTINGS, opened).held_s is None


def test_a_probe_that_cannot_be_started_is_a_refusal(opened, monkeypatch):
    """The machine has no memory or process left: the worker goes on, and tries again."""

    def fail(*_given, **_named):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", fail)
    verdict = probe(SETTINGS, opened)
    assert (verdict.code, verdict.files) == ("memory", probes.describe_files(opened))
    assert os.strerror(errno.EAGAIN) in verdict.sentence


def test_one_of_several_workers_asks_for_all(tmp_path):
    """Within the time, the second need not; a worker that is alone always does."""
    first, second = ProbeBook(tmp_path), ProbeBook(tmp_path)
    assert (first.claim("replace-1", every_s=60), second.claim("replace-1", every_s=60)) == (True, False)
    assert second.claim("replace-2", every_s=60)
    assert second.claim("replace-1", every_s=0)
    assert ProbeBook(None).claim("replace-1", every_s=60)


def test_who_asks_in_vain_asks_ever_more_rarely(tmp_path):
    """After one, two, four times the time: workers that are replaced again and again have cold caches."""
    book = ProbeBook(tmp_path)
    waits = []
    for _ in range(9):
        assert book.claim("replace-1", every_s=60)
        waits.append(next(wait for wait in range(1, 10) if can_claim_after(tmp_path, 60 * 2 ** (wait - 1) + 1)))
    assert waits == [1, 2, 3, 4, 5, 6, 7, 7, 7]


def can_claim_after(folder, seconds):
    """Whether a claim could be made if the last one was so many seconds ago, which it is from now on."""
    path = folder / "replace-1.claim"
    content, then_s = path.read_bytes(), time.time() - seconds
    os.utime(path, (then_s, then_s))
    claimed = ProbeBook(folder).claim("replace-1", every_s=60)
    path.write_bytes(content)
    os.utime(path, (then_s, then_s))
    return claimed


def test_the_supervisor_imports_no_runtime():
    """What it needs to choose and try a bundle does not load ONNX Runtime into it."""
    words = "import sys; import service.process.launcher; print('onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.strip().lower()) is False


def test_copies_answer_by_their_own_names(tmp_path):
    """The bundles that the tests of swaps use are good ones."""
    folder = rename_items(BUNDLE, tmp_path, "green", prefix="green-")
    model = load_model(folder, provider="cpu", threads=1, max_batch=4)
    assert all(item_id.startswith("green-") for item_id in model.vocabulary.item_ids)
