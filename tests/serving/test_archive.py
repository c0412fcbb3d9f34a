"""The log moves from the store to files: nothing lost or doubled wherever it is interrupted; erased users leave."""

import asyncio
import gzip
import hashlib
import json
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from model.contract import files
from service import archiver
from service.archiver import Archived, Archiver
from service.cli import main
from service.connection import connect
from service.errors import StartFailed, StoreUnavailable
from service.keys import digest_user, name_keys
from service.segments import Archive


@pytest.fixture
def folder(quick_folder):
    """Where the archive is; not there yet."""
    with tempfile.TemporaryDirectory(dir=quick_folder) as folder:
        yield Path(folder) / "deep" / "archive"


@pytest.fixture
def archive_now(store_url, folder):
    """Run the archiver once."""

    async def run():
        client = connect(store_url)
        try:
            with Archive(folder) as archive:
                return await Archiver(client, archive).run()
        finally:
            await client.aclose()

    return lambda: asyncio.run(run())


@pytest.fixture
def send(in_store, event):
    """Append events of some users, told by their event ids; each user's events go in their own partition."""

    def append(event_ids, users=("u1", "u2", "u3")):
        events = [event(user_id=user, event_id=name) for name in event_ids for user in users]
        in_store(lambda store: store.append(events))

    return append


def read_archive(folder):
    """Every archived event as (user, event id), segment by segment, and the check of the digests."""
    for list_ in folder.glob("*.sha256"):
        lines = dict(line.split("  ")[::-1] for line in list_.read_text().splitlines())
        assert lines == {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob(f"{list_.stem}-*.jsonl.gz")
        }
    return [
        (record["user_id"], record["event_id"])
        for path in sorted(folder.glob("*.jsonl.gz"))
        for record in map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    ]


def in_log(raw):
    """How many events the store's log still holds."""
    return sum(raw.xlen(key) for key in raw.scan_iter("nextitem:log:*"))


def test_log_moves_to_segments_in_its_order(archive_now, send, raw, folder, monkeypatch):
    """Several segments a partition, named by their first and last entry; the log is empty and the histories stay."""
    monkeypatch.setattr(archiver, "SEGMENT_EVENTS", 4)
    names = [f"e{number}" for number in range(10)]
    send(names)
    first = raw.xrange(name_keys("u1").log)[0][0].decode()
    assert archive_now() == Archived(moved=30, erased=0)
    assert in_log(raw) == 0
    for user in ("u1", "u2", "u3"):
        assert [name for who, name in read_archive(folder) if who == user] == names
    assert len(list(folder.glob("*.jsonl.gz"))) >= 9
    assert any(path.name.split("-", 1)[1].startswith(first) for path in folder.glob("*.jsonl.gz"))
    assert raw.llen(name_keys("u1").history) == 10
    assert archive_now() == Archived(moved=0, erased=0)
    send(["later"])
    assert archive_now().moved == 3
    assert len(read_archive(folder)) == 33


class Killed(BaseException):
    """The process ends here: nobody handles it."""


@pytest.fixture
def kill_at():
    """End a run before its nth step on disk or in the store."""

    @contextmanager
    def arm(step):
        left = [step]

        def guard(function, *arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return function(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(archiver, "SEGMENT_EVENTS", 4)
            for place, name in ((files, "write_synced"), (files, "sync_folder"), (Path, "replace"), (Archiver, "_ask")):
                patch.setattr(place, name, _wrap(guard, getattr(place, name)))
            yield

    return arm


def _wrap(guard, function):
    def wrapped(*arguments, **options):
        return guard(function, *arguments, **options)

    return wrapped


def test_killed_at_any_step_nothing_is_lost_or_archived_twice(archive_now, send, raw, folder, kill_at):
    """Before every single step in turn; events that come in between and the run after it complete the archive."""
    expected, step, killed = [], 0, True
    while killed:
        step += 1
        names = [f"{step}-{number}" for number in range(6)]
        send(names, users=["u1"])
        expected += names
        with kill_at(step):
            try:
                archive_now()
                killed = False
            except Killed:
                pass
        archived = [name for _, name in read_names_only(folder)]
        left = [json.loads(fields[b"e"])["event_id"] for _, fields in raw.xrange(name_keys("u1").log)]
        assert [*archived, *(name for name in left if name not in archived)] == expected
        assert len(archived) == len(set(archived))
    assert step > 60
    archive_now()
    assert [name for _, name in read_archive(folder)] == expected
    assert in_log(raw) == 0


def read_names_only(folder):
    """The archive as a killed run left it, whose digests need not be complete."""
    if not folder.exists():
        return []
    records = []
    for path in sorted(folder.glob("*.jsonl.gz"), key=lambda path: [int(part) for part in path.name[:-9].split("-")]):
        records += map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    return [(record["user_id"], record["event_id"]) for record in records]


def test_erased_users_leave_the_archive(archive_now, send, in_store, folder):
    """From segments old and new, exactly theirs; what they do later is kept; nothing names them any more."""
    send(["a", "b"])
    archive_now()
    send(["c"])
    in_store(lambda store: store.erase("u1"))
    assert archive_now() == Archived(moved=2, erased=2)
    assert sorted(read_archive(folder)) == [(user, name) for user in ("u2", "u3") for name in "abc"]
    assert not any(b'"u1"' in gzip.decompress(path.read_bytes()) for path in folder.glob("*.gz"))
    assert archive_now() == Archived(moved=0, erased=0)

    async def come_back(store):
        from service.event import make_event  # noqa: PLC0415 - one use

        when = 4_000_000_000_000
        await store.append([make_event(user_id="u1", item_id="i", event_type="view", timestamp_ms=when, now_ms=when)])

    in_store(come_back)
    assert archive_now().moved == 1
    assert archive_now().erased == 0
    assert "u1" in {user for user, _ in read_archive(folder)}


def test_damaged_segment_is_named_and_keeps_no_log_in_the_store(archive_now, send, in_store, raw, folder):
    """Whether it holds an erased user nobody knows: the erasure waits until it is put back, and the log does not."""
    send(["a"])
    archive_now()
    [segment] = folder.glob(f"{name_keys('u1').log[-3:-1]}-*.gz")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-9])
    send(["b"])
    in_store(lambda store: store.erase("u1"))
    with pytest.raises(StartFailed, match=f"{segment.name} is damaged"):
        archive_now()
    assert in_log(raw) == 0
    segment.write_bytes(whole)
    assert archive_now().erased == 1
    assert sorted(read_archive(folder)) == [(user, name) for user in ("u2", "u3") for name in "ab"]


def test_entries_that_an_interrupted_erasure_left_are_not_archived(archive_now, send, raw, folder):
    """The tombstone alone keeps them out, and they leave the log."""
    send(["a"])
    raw.hset(name_keys("u1").erased, digest_user("u1"), 4_000_000_000_000)
    assert archive_now().moved == 2
    assert {user for user, _ in read_archive(folder)} == {"u2", "u3"}
    assert in_log(raw) == 0


def test_folder_of_another_store_is_refused(archive_now, send, raw):
    """Its ids would pass for archived, and events would be lost: nothing is moved."""
    send(["a"])
    archive_now()
    raw.set("nextitem:store", "another")
    send(["b"])
    with pytest.raises(StartFailed, match="archive of another store"):
        archive_now()
    assert in_log(raw) == 3


def test_two_processes_do_not_share_a_folder(folder):
    """The second is told so."""
    with Archive(folder), pytest.raises(StartFailed, match="another process archives"), Archive(folder):
        pass


def test_what_a_killed_process_left_is_removed(folder):
    """A file that was not whole yet."""
    folder.mkdir(parents=True)
    (folder / ".07-1-0-2-0.jsonl.gz.123.partial").write_bytes(b"half")
    with Archive(folder):
        assert [path.name for path in folder.iterdir()] == ["archive.lock"]


def test_store_that_refuses(archive_now, send, raw, folder):
    """StoreUnavailable, and nothing of the log is gone."""
    send(["a"])
    raw.set(name_keys("u2").erased, "no hash")
    with pytest.raises(StoreUnavailable):
        archive_now()
    assert in_log(raw) + len(read_names_only(folder)) >= 3


def test_command_archives_once(send, store_url, raw, folder, capsys):
    """`nextitem-serve archive --once` moves the log and ends; what it lacks, it says."""
    send(["a"])
    command = partial(["archive", "--once", "--log-level", "error"].__add__)
    assert main(command(["--redis-url", store_url, "--archive-dir", str(folder)])) == 0
    assert len(read_archive(folder)) == 3
    assert in_log(raw) == 0
    assert main(command(["--redis-url", store_url])) == 1
    assert main(command(["--redis-url", "unix:///nowhere", "--archive-dir", str(folder)])) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line[0] != "{"] == [
        "nextitem-serve: archive needs --redis-url and --archive-dir; the embedded store's log is archived by itself",
        "nextitem-serve: the store does not answer or refuses: nothing was archived",
    ]
