"""`nextitem-serve store`: damage is found and mended, and a backup under traffic holds what was acknowledged."""

import asyncio
import contextlib
import gzip
import hashlib
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from redis import Redis

from service.archive.archiver import Archiver
from service.archive.segments import Archive
from service.backup import snapshot
from service.backup.backup import DIGESTS, back_up, restore
from service.cli import main
from service.embedded.append_only import SAVED, check
from service.embedded.data_folder import APPEND_ONLY_FOLDER, MANIFEST
from service.embedded.loss_detection import HIGH_WATER
from service.embedded.server import EmbeddedStore
from service.errors import StartFailed, StoreUnavailable
from service.ingest.parser import parse_events
from service.store.catalogue import CatalogueStore, ItemChange
from service.store.connection import connect
from service.store.event import make_event
from service.store.history import HistoryStore
from service.store.redis_keys import LOST_EVENTS

NOW_MS = 1_763_719_498_123
INCREMENT = "appendonly.aof.1.incr.aof"
BASE = "appendonly.aof.1.base.rdb"


@pytest.fixture(autouse=True)
def keep_signals():
    """Commands set what SIGTERM does; the tests' own process gets it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def data_dir(tmp_path):
    """Where a store may keep its files; not there yet."""
    return tmp_path / "data"


@pytest.fixture
def command(data_dir, capsys):
    """Run one of the commands on the data folder. Its status, and what it wrote to stdout and stderr."""

    def run(*words):
        status = main(["store", *words, "--data-dir", str(data_dir)])
        return (status, *capsys.readouterr())

    return run


async def _append_surely(store, events):
    """As a client that sends again after a 503: the disk of a busy machine may stand still for a second."""
    for _ in range(9):
        with contextlib.suppress(StoreUnavailable):
            return await store.append(events)
    return await store.append(events)


def _append(url, names, user="u"):
    async def send():
        store = HistoryStore(connect(url))
        try:
            for name in names:
                event = make_event(user_id=user, item_id="i", event_type="view", now_ms=NOW_MS, event_id=name)
                await _append_surely(store, [event])
        finally:
            await store.close()

    asyncio.run(send())


def _read(url, user="u"):
    async def ask():
        store = HistoryStore(connect(url))
        try:
            return [event.event_id for event in (await store.export(user))[1]]
        finally:
            await store.close()

    return asyncio.run(ask())


@pytest.fixture
def filled(data_dir):
    """A store that holds 20 events of one user and has ended. Its append-only folder."""
    with EmbeddedStore(data_dir) as store:
        _append(store.url, [f"e{number}" for number in range(20)])
    return data_dir / APPEND_ONLY_FOLDER


def _spoil(file, place, what=b"!!"):
    content = file.read_bytes()
    file.write_bytes(content[:place] + what + content[place + len(what) :])


def _hash_all(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_whole_store_is_called_whole(filled, command):
    """Nothing is wrong: one sentence a file, status 0, and nothing is changed."""
    before = _hash_all(filled)
    status, said, _ = command("check")
    assert status == 0
    assert said.splitlines()[:2] == [
        f"{BASE} is whole, {(filled / BASE).stat().st_size} bytes",
        f"{INCREMENT} is whole, {(filled / INCREMENT).stat().st_size} bytes",
    ]
    assert _hash_all(filled) == before


def test_damage_in_the_middle_is_found_and_mended(filled, command, data_dir):
    """The service refuses to start and names the command, which says where and how much, copies, and cuts."""
    place = (filled / INCREMENT).read_bytes().index(b"*5\r\n$4\r\nXADD", (filled / INCREMENT).stat().st_size // 2)
    _spoil(filled / INCREMENT, place)
    damaged = _hash_all(filled)
    with pytest.raises(StartFailed, match=r"`nextitem-serve store check --data-dir"):
        EmbeddedStore(data_dir).start()
    status, said, hint = command("check")
    assert status == 1
    [sentence] = [line for line in said.splitlines() if line.startswith(INCREMENT)]
    kept = 20 - int(sentence.split(" events from after that byte")[0].rpartition(" ")[2])
    assert f"--data-dir {data_dir} --fix" in hint
    assert _hash_all(filled) == damaged

    status, said, _ = command("check", "--fix")
    assert status == 0
    [aside] = data_dir.glob("damaged-*")
    assert str(aside) in said
    assert {name: content for name, content in _hash_all(aside).items() if name != SAVED} == damaged
    assert stat.S_IMODE(aside.stat().st_mode) == 0o700
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        assert _read(store.url) == [f"e{number}" for number in range(kept)]
        assert int(client.get(LOST_EVENTS)) == 20 - kept
        _send_again(store.url, aside / SAVED)
        assert _read(store.url) == [f"e{number}" for number in range(20)]
    assert 5 < kept < 15


def _send_again(url, file):
    """Store the events of a file as POST /events would."""

    async def send():
        store = HistoryStore(connect(url))
        try:
            for line in file.read_bytes().splitlines():
                taken = parse_events(
                    json.loads(line), strict=True, event_types=("view",), now_ms=NOW_MS, on_rejected=print
                )
                await store.append(list(taken.events.values()))
        finally:
            await store.close()

    asyncio.run(send())


@pytest.mark.parametrize("content", [None, "rubbish\n", ""])
def test_a_lost_manifest_is_written_anew(filled, command, data_dir, content):
    """Missing, damaged or empty, it is made from the files that are there, and no event is lost."""
    if content is None:
        (filled / MANIFEST).unlink()
    else:
        (filled / MANIFEST).write_text(content)
    status, said, _ = command("check")
    assert (status, said.split(":")[0]) == (1, f"{MANIFEST} is {'missing' if content is None else 'damaged'}")
    assert command("check", "--fix")[0] == 0
    with EmbeddedStore(data_dir) as store:
        assert _read(store.url) == [f"e{number}" for number in range(20)]


def test_a_file_that_is_missing_is_left_out(filled, command, data_dir):
    """Without the commands the snapshot is what there is; --fix says so and goes on with it."""
    (filled / INCREMENT).unlink()
    status, said, _ = command("check")
    assert status == 1
    assert f"{INCREMENT} is missing" in said
    assert command("check", "--fix")[0] == 0
    with EmbeddedStore(data_dir) as store:
        assert _read(store.url) == []


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_without_its_snapshot_nothing_is_mended(filled, command, how):
    """A snapshot that cannot be read leaves a backup alone: the sentence says so, and nothing is changed."""
    if how == "missing":
        (filled / BASE).unlink()
    else:
        _spoil(filled / BASE, 40)
    before = _hash_all(filled)
    status, said, _ = command("check", "--fix")
    assert status == 1
    assert f"the base snapshot, is {how} and cannot be repaired: restore a backup" in said
    assert _hash_all(filled) == before
    assert list(filled.parent.glob("damaged-*")) == []


def test_what_follows_on_damage_is_left_out(filled, command, data_dir):
    """A file after a damaged one is left out, since its events would follow on a gap; it counts what that costs."""
    second = "appendonly.aof.2.incr.aof"
    shutil.copy(filled / INCREMENT, filled / second)
    with (filled / MANIFEST).open("a") as manifest:
        manifest.write(f"file {second} seq 2 type i\n")
    _spoil(filled / INCREMENT, 0)
    status, said, _ = command("check")
    assert status == 1
    assert (
        f"{second} is whole but follows a damaged or missing file: --fix leaves it out and saves its 20 events" in said
    )
    assert command("check", "--fix")[0] == 0
    with EmbeddedStore(data_dir) as store:
        assert _read(store.url) == []


def test_a_torn_end_is_no_damage_wherever_it_is(filled, data_dir):
    """Whole or torn is all that a file is that ends early, at whichever byte; the server loads each of them."""
    content = (filled / INCREMENT).read_bytes()
    states = set()
    for size in range(len(content) - 160, len(content), 7):
        (filled / INCREMENT).write_bytes(content[:size])
        report = check(data_dir)
        assert report.sound, size
        states.add(report.findings[-1].state)
    assert states == {"torn"}


def test_a_running_store_is_not_checked(data_dir, command):
    """Its last file is being written: one sentence says to stop the service."""
    with EmbeddedStore(data_dir):
        status, _, said = command("check", "--fix")
    assert status == 1
    assert said.strip() == f"nextitem-serve store: a service uses {data_dir}: stop it first"


def test_a_folder_without_a_store_is_refused(tmp_path, command, data_dir):
    """One sentence says which folder to give, and none is made."""
    status, _, said = command("check")
    assert (status, data_dir.exists()) == (1, False)
    assert "give the --data-dir that the service uses" in said
    data_dir.mkdir()
    assert command("check")[0] == 1
    assert list(data_dir.iterdir()) == []
    status, _, said = command("backup", "--out", str(tmp_path / "b"))
    assert status == 1
    assert "holds no store" in said
    assert not (tmp_path / "b").exists()


def test_a_loss_is_acknowledged_while_the_service_runs(data_dir, command):
    """The note that events were lost is taken out of the running store, and only there."""
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        client.set(LOST_EVENTS, 3)
        assert command("acknowledge")[:2] == (0, "Acknowledged that 3 events were lost.\n")
        assert client.get(LOST_EVENTS) is None
    status, _, said = command("acknowledge")
    assert status == 1
    assert "no service runs on" in said


@pytest.mark.parametrize("running", [True, False])
def test_a_backup_is_restored(data_dir, command, tmp_path, running):
    """Running or not, store and archive are copied, privately and with digests, and a service starts from them."""
    out = tmp_path / "backups" / "monday"
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(EmbeddedStore(data_dir))
        _append(store.url, ["a", "b"])
        asyncio.run(_archive(store.url, data_dir / "archive"))
        _append(store.url, ["c"])
        if not running:
            store.stop()
        status, said, _ = command("backup", "--out", str(out))
        assert status == 0, said
        assert str(out) in said
    listed = dict(line.split("  ")[::-1] for line in (out / DIGESTS).read_text().splitlines())
    assert listed == {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in out.rglob("*")
        if path.is_file() and path.name != DIGESTS
    }
    assert [path for path in (out, *out.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert main(["store", "check", "--data-dir", str(out)]) == 0

    again = tmp_path / "again"
    assert main(["store", "restore", "--from", str(out), "--data-dir", str(again)]) == 0
    assert not (again / HIGH_WATER).exists()
    with EmbeddedStore(again) as store, Redis.from_url(store.url) as client:
        assert _read(store.url) == ["a", "b", "c"]
        assert client.get(LOST_EVENTS) is None
        asyncio.run(_archive(store.url, again / "archive"))
    assert Counter(_read_archive(again / "archive")) == Counter(["a", "b", "c"])


async def _archive(url, folder):
    client = connect(url, max_connections=1)
    try:
        with Archive(folder) as archive:
            await Archiver(client, archive).run()
    finally:
        await client.aclose()


def _read_archive(folder):
    """The ids of all events in an archive."""
    segments = folder.glob("*.jsonl.gz")
    lines = (line for segment in segments for line in gzip.decompress(segment.read_bytes()).splitlines())
    return [json.loads(line)["event_id"] for line in lines]


def test_a_backup_under_traffic_holds_what_was_acknowledged_before(data_dir, tmp_path):
    """Events are sent, archived and the file is rewritten meanwhile: each of before is there once, none twice."""
    acknowledged, stop = [], threading.Event()

    def send(url):
        async def main():
            store = HistoryStore(connect(url))
            number = 0
            while not stop.is_set():
                names = [f"{number}-{index}" for index in range(5)]
                events = [
                    make_event(user_id=f"u{name[-1]}", item_id="i", event_type="view", now_ms=NOW_MS, event_id=name)
                    for name in names
                ]
                await _append_surely(store, events)
                acknowledged.extend(names)
                number += 1
            await store.close()

        asyncio.run(main())

    def disturb(url):
        with Redis.from_url(url) as client:
            while not stop.is_set():
                asyncio.run(_archive(url, data_dir / "archive"))
                client.bgrewriteaof()
                stop.wait(0.3)

    backups = []
    with EmbeddedStore(data_dir) as store:
        threads = [threading.Thread(target=work, args=(store.url,)) for work in (send, disturb)]
        for thread in threads:
            thread.start()
        try:
            for number in range(4):
                time.sleep(0.2)
                before = list(acknowledged)
                back_up(data_dir, tmp_path / f"b{number}", archive_dir=None, say=lambda _: None)
                backups.append((tmp_path / f"b{number}", before))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert len(backups[-1][1]) > 50
    for place, before in backups:
        again = tmp_path / f"again-{place.name}"
        restore(place, again, say=lambda _: None)
        in_archive = set(_read_archive(again / "archive")) if (again / "archive").exists() else set()
        with EmbeddedStore(again) as store:
            assert set(before) <= in_archive | _read_log(store.url)
            asyncio.run(_archive(store.url, again / "archive"))
        counts = Counter(_read_archive(again / "archive"))
        assert set(before) <= counts.keys()
        assert set(counts.values()) <= {1}


def _read_log(url):
    with Redis.from_url(url) as client:
        return {
            json.loads(fields[b"e"])["event_id"]
            for key in client.scan_iter("nextitem:log:*")
            for _, fields in client.xrange(key)
        }


def test_half_a_command_at_the_end_is_not_backed_up(filled, data_dir, tmp_path):
    """What was being written at that moment is cut off the copy, not off the store."""
    with (filled / INCREMENT).open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$1")
    size = (filled / INCREMENT).stat().st_size
    back_up(data_dir, tmp_path / "b", archive_dir=None, say=lambda _: None)
    assert (filled / INCREMENT).stat().st_size == size
    assert [finding.state for finding in check(tmp_path / "b").findings] == ["whole", "whole"]
    restore(tmp_path / "b", tmp_path / "again", say=lambda _: None)


def test_a_damaged_store_is_not_backed_up(filled, command, tmp_path):
    """A backup that could not be loaded is none: the sentence says what is wrong, and nothing is left."""
    _spoil(filled / INCREMENT, 0)
    status, _, said = command("backup", "--out", str(tmp_path / "b"))
    assert status == 1
    assert "damaged, so nothing was backed up" in said
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.usefixtures("filled")
def test_an_archive_elsewhere_is_backed_up_with_it(command, tmp_path):
    """The folder that the service archives to is the one that is copied."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "00-1-0-2-0.jsonl.gz").write_bytes(b"x")
    assert command("backup", "--out", str(tmp_path / "b"), "--archive-dir", str(elsewhere))[0] == 0
    assert (tmp_path / "b/archive/00-1-0-2-0.jsonl.gz").read_bytes() == b"x"


@pytest.mark.usefixtures("filled")
def test_an_archive_that_never_stands_still_is_refused(command, tmp_path, monkeypatch):
    """Store and archive would not fit together: after some attempts one sentence says when to try again."""
    monkeypatch.setattr(snapshot, "WAIT_S", 0.3)
    looks = itertools.count()
    monkeypatch.setattr(snapshot, "_list_archive", lambda _: {"x.jsonl.gz": snapshot._Stamp(next(looks), 1, 1)})
    status, _, said = command("backup", "--out", str(tmp_path / "b"))
    assert status == 1
    assert "kept changing" in said
    assert not (tmp_path / "b").exists()


@pytest.mark.usefixtures("filled")
def test_a_backup_overwrites_nothing(command, tmp_path):
    """A folder that is there already is left as it is."""
    (tmp_path / "b").mkdir()
    status, _, said = command("backup", "--out", str(tmp_path / "b"))
    assert status == 1
    assert "exists already" in said
    assert list((tmp_path / "b").iterdir()) == []


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("inside", ["data/b", "data/archive/b", "elsewhere/b"])
def test_a_backup_is_not_put_into_what_it_copies(command, tmp_path, inside):
    """It would be copied with the next one, or with itself."""
    status, _, said = command("backup", "--out", str(tmp_path / inside), "--archive-dir", str(tmp_path / "elsewhere"))
    assert status == 1
    assert "give a folder elsewhere" in said
    assert not (tmp_path / inside).parent.joinpath("b").exists()


@pytest.mark.usefixtures("filled")
def test_ctrl_c_leaves_nothing_half_done(data_dir, tmp_path):
    """SIGINT in the midst of copying ends it with status 130 and takes the copy away."""
    slow = (
        "import sys, time\n"
        "from service.backup import backup\n"
        "copy = backup.copy_file\n"
        "def wait(*given):\n"
        "    copy(*given); print('copied', flush=True); time.sleep(60)\n"
        "backup.copy_file = wait\n"
        "from service.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = ["store", "backup", "--data-dir", str(data_dir), "--out", str(tmp_path / "b")]
    with subprocess.Popen(
        [sys.executable, "-c", slow, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"copied\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.endswith(b"interrupted; no partial files are left behind\n")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.fixture
def taken(filled, tmp_path):
    """A backup."""
    back_up(filled.parent, tmp_path / "b", archive_dir=None, say=lambda _: None)
    return tmp_path / "b"


SPOILT = {
    "changed": lambda taken: _spoil(taken / APPEND_ONLY_FOLDER / INCREMENT, 50),
    "short": lambda taken: os.truncate(taken / APPEND_ONLY_FOLDER / INCREMENT, 50),
    "missing": lambda taken: (taken / APPEND_ONLY_FOLDER / INCREMENT).unlink(),
    "none": lambda taken: (taken / DIGESTS).unlink(),
    "aims elsewhere": lambda taken: (taken / DIGESTS).write_text(f"{'0' * 64}  ../data/appendonlydir/{INCREMENT}\n"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_backup_is_not_restored(taken, tmp_path, how, capsys):
    """A backup that is not what was written is refused, and nothing of it is put into the data folder."""
    SPOILT[how](taken)
    assert main(["store", "restore", "--from", str(taken), "--data-dir", str(tmp_path / "again")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"nextitem-serve store: {taken}")
    assert not (tmp_path / "again" / APPEND_ONLY_FOLDER).exists()
    if how != "none":
        assert main(["store", "check", "--data-dir", str(taken)]) == 1


def test_a_restore_needs_an_empty_folder(taken, command, data_dir, filled):
    """Neither files that are there nor a running service are overwritten."""
    before = _hash_all(filled)
    status, _, said = command("restore", "--from", str(taken))
    assert status == 1
    assert "is not empty" in said
    assert _hash_all(filled) == before
    with EmbeddedStore(data_dir):
        status, _, said = command("restore", "--from", str(taken))
    assert (status, said.strip()) == (1, f"nextitem-serve store: a service uses {data_dir}: stop it first")


DAMAGE = {
    "a flipped bit in the snapshot": lambda folder: _spoil(folder / BASE, 40),
    "a short snapshot": lambda folder: os.truncate(folder / BASE, 30),
    "zeros at the end": lambda folder: os.truncate(folder / INCREMENT, (folder / INCREMENT).stat().st_size + 4096),
    "a file that is missing": lambda folder: (folder / INCREMENT).unlink(),
    "a manifest of something else": lambda folder: (folder / MANIFEST).write_text("rubbish\n"),
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_whatever_is_damaged_the_start_names_the_command(filled, data_dir, command, how):
    """A store that cannot be loaded is one sentence with the command, and the command finds what is wrong."""
    DAMAGE[how](filled)
    with pytest.raises(StartFailed, match=rf"`nextitem-serve store check --data-dir {data_dir}` says what is wrong"):
        EmbeddedStore(data_dir).start()
    status, said, _ = command("check")
    assert status == 1
    assert "The store is whole" not in said


def test_a_backup_holds_the_catalogue(data_dir, tmp_path):
    """Its version, its records and its log, as they were acknowledged before."""

    async def change(url):
        store = HistoryStore(connect(url))
        try:
            catalogue = CatalogueStore(store)
            await catalogue.change([ItemChange("i1", "put", known=True, available=False)])
            await catalogue.change([ItemChange("new", "put", known=False, metadata=b'{"title":"New"}')])
        finally:
            await store.close()

    def read(url):
        with Redis.from_url(url) as client:
            keys = sorted(client.keys("nextitem:{catalogue}:*"))
            return [(key, client.dump(key)) for key in keys]

    with EmbeddedStore(data_dir) as store:
        asyncio.run(change(store.url))
        assert main(["store", "backup", "--out", str(tmp_path / "out"), "--data-dir", str(data_dir)]) == 0
        before = read(store.url)
    assert len(before) == 3
    again = tmp_path / "again"
    assert main(["store", "restore", "--from", str(tmp_path / "out"), "--data-dir", str(again)]) == 0
    with EmbeddedStore(again) as store:
        assert read(store.url) == before
