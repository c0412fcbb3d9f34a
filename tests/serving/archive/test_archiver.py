"""The log moves from the store to files: nothing lost or doubled wherever it is interrupted; erased users leave."""

import asyncio
import gzip
import hashlib
import json
import re
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ResponseError

from model.contract import atomic_files
from service.archive import archiver, merge_plan, rewrite, store_log
from service.archive.archiver import Archived, Archiver
from service.archive.failures import describe_failure
from service.archive.segments import Archive
from service.archive.store_log import StoreLog
from service.cli import main
from service.errors import ArchiveFailed, StartFailed
from service.store import multiplexer
from service.store.connection import connect
from service.store.redis_keys import digest_user, name_keys


@pytest.fixture
def folder(short_folder):
    """Where the archive is; not there yet."""
    with tempfile.TemporaryDirectory(dir=short_folder) as folder:
        yield Path(folder) / "deep" / "archive"


@pytest.fixture
def archive_now(store_url, folder):
    """Run the archiver once."""

    async def run(options):
        client = connect(store_url)
        try:
            with Archive(folder, **options) as archive:
                return await Archiver(client, archive).run()
        finally:
            await client.aclose()

    return lambda **options: asyncio.run(run(options))


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
    monkeypatch.setattr(store_log, "SEGMENT_EVENTS", 4)
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
            patch.setattr(store_log, "SEGMENT_EVENTS", 4)
            for place, name in (
                (atomic_files, "write_synced"),
                (atomic_files, "sync_folder"),
                (Path, "replace"),
                (Path, "unlink"),
                (StoreLog, "ask_all"),
            ):
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
    """The archive as a killed run left it: its digests need not be complete, what was merged may still be there."""
    records: list[dict[str, str]] = []
    end: tuple[int, ...] = (0, 0, 0)
    named = [([int(part) for part in path.name[:-9].split("-")], path) for path in folder.glob("*.jsonl.gz")]
    for (partition, *ids), path in sorted(named, key=lambda pair: (*pair[0][:3], -pair[0][3], -pair[0][4])):
        if (partition, *ids[2:]) > end:
            records += map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
            end = (partition, *ids[2:])
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
        from service.store.event import make_event  # noqa: PLC0415 - one use

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
    with pytest.raises(ArchiveFailed, match=f"{segment.name} is damaged"):
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
    with pytest.raises(ArchiveFailed, match="archive of another store"):
        archive_now()
    assert in_log(raw) == 3


def test_two_processes_do_not_share_a_folder(folder):
    """The second is told so, unless the first one ends while it waits."""
    with Archive(folder) as first:
        with pytest.raises(StartFailed, match="another process archives"), Archive(folder):
            pass
        threading.Timer(0.2, first.__exit__, (None, None, None)).start()
        with Archive(folder, lock_wait_s=30):
            pass


def test_what_a_killed_process_left_is_removed(folder):
    """A file that was not whole yet."""
    folder.mkdir(parents=True)
    (folder / ".07-1-0-2-0.jsonl.gz.123.partial").write_bytes(b"half")
    with Archive(folder) as archive:
        archive.refresh()
        assert [path.name for path in folder.iterdir()] == ["archive.lock"]


def test_store_that_refuses(archive_now, send, raw, folder):
    """What its keys hold is said, other partitions are archived, and nothing of the log is gone."""
    send(["a"])
    raw.set(name_keys("u2").erased, "no hash")
    with pytest.raises(ArchiveFailed, match=r"cannot do HSCAN \(WRONGTYPE\)") as caught:
        archive_now()
    assert caught.value.kind == "data"
    assert in_log(raw) == 1
    assert len(read_names_only(folder)) == 2


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
        "nextitem-serve: archive needs --redis-url and --archive-dir; the service itself archives an embedded store",
        "nextitem-serve: archiver run failed: the store cannot be reached",
    ]


@pytest.mark.parametrize("variables", ["the image's", "wrong ones"])
def test_archiver_heeds_no_setting_that_it_does_not_read(variables, send, store_url, folder, monkeypatch):
    """The image says for the service where to listen: an archiver in it runs, even if all of that were wrong."""
    image = dict(re.findall(r"\b(NEXTITEM_\w+)=(\S+)", (Path(__file__).parents[3] / "Dockerfile").read_text()))
    assert image["NEXTITEM_HOST"] == "0.0.0.0"  # noqa: S104 - which is refused to a service without keys
    wrong = {"NEXTITEM_WORKERS": "none", "NEXTITEM_DURABILITY": "any", "NEXTITEM_BUNDLE": ""}
    for name, value in (image if variables == "the image's" else wrong).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NEXTITEM_REDIS_URL", store_url)
    monkeypatch.setenv("NEXTITEM_ARCHIVE_DIR", str(folder))
    send(["a"])
    assert main(["archive", "--once", "--log-level", "error"]) == 0
    assert len(read_archive(folder)) == 3
    monkeypatch.setenv("NEXTITEM_ARCHIVE_MINUTES", "0")
    assert main(["archive", "--once"]) == 2


@pytest.fixture
def full(raw, settings):
    """Make the store refuse whatever takes memory."""

    def fill():
        settings(maxmemory_policy="noeviction", maxmemory=1)
        with pytest.raises(OutOfMemoryError):
            raw.set("nextitem:any", "x")

    return fill


@pytest.mark.parametrize("before", ["archived before", "never archived"])
def test_full_store_is_archived_and_erased_from(archive_now, send, in_store, full, before):
    """What frees memory is not refused, and nothing on the way to it is."""
    if before == "archived before":
        send(["a"])
        archive_now()
    send(["b"])
    full()
    in_store(lambda store: store.erase("u1"))
    assert archive_now() == Archived(2, erased=1 if before == "archived before" else 0)
    state = in_store(lambda store: store.inspect()).archive
    assert (state.pending_events, state.erasures_pending) == (0, 0)
    assert state.last_success_s > 0
    assert in_store(lambda store: store.read_many(["u1"]))[0].version == 0


def test_log_goes_to_one_folder(archive_now, send, raw, folder, store_url):
    """Another one is refused and stays empty, until it is said that the log goes there; a copy is the same folder."""
    send(["a"])
    archive_now()
    other, copied = folder.parent / "other", folder.parent / "copied"
    command = ["archive", "--once", "--log-level", "error", "--redis-url", store_url, "--archive-dir"]
    send(["b"])
    assert main([*command, str(other)]) == 1
    assert raw.hget("nextitem:archive", "failed:folder") == b"1"
    assert read_archive(other) == []
    assert in_log(raw) == 3
    shutil.copytree(folder, copied)
    assert main([*command, str(copied)]) == 0
    assert len(read_archive(copied)) == 6
    assert raw.hget("nextitem:archive", "failed:folder") is None
    send(["c"])
    assert main([*command, str(other), "--take-over"]) == 0
    assert len(read_archive(other)) == 3
    send(["d"])
    with pytest.raises(ArchiveFailed, match="goes to another folder"):
        archive_now()


def test_store_that_was_emptied_takes_its_folder_over(archive_now, send, raw, folder, store_url):
    """It has lost its name: the folder passes for another store's until somebody says that it is this one's."""
    send(["a"])
    archive_now()
    raw.flushall()
    send(["b"])
    with pytest.raises(ArchiveFailed, match="archive of another store"):
        archive_now()
    command = ["archive", "--once", "--log-level", "error", "--redis-url", store_url, "--archive-dir", str(folder)]
    assert main([*command, "--take-over"]) == 0
    send(["c"])
    assert archive_now().moved == 3
    assert len(read_archive(folder)) == 9


def test_folder_of_an_older_version_is_adopted(archive_now, send, raw, folder):
    """It has no identity, and the store remembers no folder: the first run sees to both."""
    send(["a"])
    archive_now()
    (folder / "id").unlink()
    raw.delete("nextitem:archive")
    send(["b"])
    assert archive_now().moved == 3
    assert raw.hget("nextitem:archive", "folder").decode() == (folder / "id").read_text().strip()


def test_run_does_not_chase_whoever_writes(archive_now, send, raw, folder, monkeypatch):
    """It moves what was there when it began, however much arrives: one file a partition, and it ends."""
    send(["a"], users=["u1"])
    move = StoreLog.read

    async def write_meanwhile(self, *arguments):
        entries = await move(self, *arguments)
        raw.xadd(name_keys("u1").log, {"e": event_record(f"late-{time.monotonic_ns()}")})
        return entries

    monkeypatch.setattr(StoreLog, "read", write_meanwhile)
    assert archive_now().moved == 1
    assert in_log(raw) == 1
    assert len(list(folder.glob("*.gz"))) == 1


def event_record(event_id, user_id="u1"):
    """An event as the log has it."""
    return json.dumps({"event_id": event_id, "user_id": user_id, "item_id": "i", "timestamp": 1_763_719_498_123})


def test_many_small_segments_become_few(archive_now, send, folder, monkeypatch):
    """All events in their order, listed with their digests; a segment that is large enough is left alone."""
    names = [f"e{number}" for number in range(40)]
    most = 0
    for name in names:
        send([name], users=["u1"])
        archive_now()
        most = max(most, len(list(folder.glob("*.gz"))))
    assert [name for _, name in read_archive(folder)] == names
    assert most <= 10
    monkeypatch.setattr(merge_plan, "MERGED_BYTES", 1)
    before = {path.name for path in folder.glob("*.gz")}
    for name in "abcdefgh":
        send([name], users=["u1"])
        archive_now()
    assert before < {path.name for path in folder.glob("*.gz")}
    assert len(list(folder.glob("*.gz"))) == len(before) + 8


def test_one_listing_a_run(archive_now, send, folder, monkeypatch):
    """The folder is read once, whatever there is to move, to erase and to merge."""
    send(["a"])
    archive_now()
    send(["b"])
    listings, iterate = [], Path.iterdir

    def count(path):
        listings.append(path)
        return iterate(path)

    monkeypatch.setattr(Path, "iterdir", count)
    monkeypatch.setattr(Path, "glob", None)
    archive_now()
    assert listings == [folder]


def test_one_damaged_segment_stops_no_other_partition(archive_now, send, in_store, folder):
    """The other users leave the archive at once; the one that may be in the damaged segment is pending, and says so."""
    send(["a"])
    archive_now()
    partition = min(name_keys(user).log[-3:-1] for user in ("u1", "u2", "u3"))
    [segment] = folder.glob(f"{partition}-*.gz")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-9])
    for user in ("u1", "u2", "u3"):
        in_store(lambda store, user=user: store.erase(user))
    for _ in range(2):
        with pytest.raises(ArchiveFailed, match=f"{segment.name} is damaged") as caught:
            archive_now()
        assert caught.value.kind == "segment"
    state = in_store(lambda store: store.inspect()).archive
    assert (state.erasures_pending, state.failed_runs["segment"]) == (1, 2)
    assert 0 < state.oldest_erasure_s < time.time() + 1
    segment.write_bytes(b"")
    assert read_archive_but(segment, folder) == []
    segment.write_bytes(whole)
    assert archive_now().erased == 1
    state = in_store(lambda store: store.inspect()).archive
    assert (state.erasures_pending, state.oldest_erasure_s, state.failed_runs["segment"]) == (0, 0, 0)
    assert state.last_success_s > 0
    assert read_archive(folder) == []


def test_erased_users_do_not_come_back_with_a_segment_from_a_backup(archive_now, send, in_store, folder):
    """Whatever takes a damaged one's place goes through all erasures once more, those done before included."""
    send(["a"], users=["u1"])
    archive_now()
    [segment] = folder.glob("*.gz")
    backup = segment.read_bytes()
    in_store(lambda store: store.erase("u1"))
    assert archive_now().erased == 1
    segment.write_bytes(b"damaged")
    in_store(lambda store: store.erase("u1"))
    with pytest.raises(ArchiveFailed, match="is damaged"):
        archive_now()
    segment.write_bytes(backup)
    assert archive_now().erased == 1
    assert read_archive(folder) == []


def test_a_segment_that_is_put_back_late_is_taken_in(archive_now, send, folder):
    """Its neighbours were merged meanwhile, to one whose ids lie around its own: what that lacks is added."""
    for name in "abcdefgh":
        send([name], users=["u1"])
        archive_now()
        if name == "b":
            taken = max(folder.glob("*.gz"), key=lambda path: path.name)
            content = taken.read_bytes()
            taken.unlink()
    assert [name for _, name in read_archive(folder)] == list("acdefgh")
    taken.write_bytes(content)
    archive_now()
    assert sorted(name for _, name in read_archive(folder)) == list("abcdefgh")
    assert not taken.exists()


def test_a_segment_without_a_byte_is_damaged(archive_now, send, in_store, folder):
    """It holds not even the end of an empty file: nothing is taken for erased from it."""
    send(["a"], users=["u1"])
    archive_now()
    [segment] = folder.glob("*.gz")
    segment.write_bytes(b"")
    in_store(lambda store: store.erase("u1"))
    with pytest.raises(ArchiveFailed, match="is damaged"):
        archive_now()
    assert in_store(lambda store: store.inspect()).archive.erasures_pending == 1


def read_archive_but(segment, folder):
    """The events of all segments but one."""
    paths = set(folder.glob("*.gz")) - {segment}
    return [line for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_new_events_below_the_end_are_archived(archive_now, send, raw, folder):
    """A store put back to an earlier state, whose clock is behind: old entries are not archived again, new ones are."""
    send(["a"], users=["u1"])
    log = name_keys("u1").log
    [(old, fields)] = raw.xrange(log)
    send(["b"], users=["u1"])
    archive_now()
    raw.delete(log)
    raw.xadd(log, fields, id=old)
    raw.xadd(log, {"e": event_record("new")}, id=f"{old.decode().split('-')[0]}-7")
    assert archive_now().moved == 1
    assert in_log(raw) == 0
    assert sorted(name for _, name in read_archive(folder)) == ["a", "b", "new"]
    assert archive_now().moved == 0


def test_large_events_arrive_in_smaller_portions(archive_now, send, folder, monkeypatch):
    """A portion that does not arrive in time is asked for in halves, down to one event."""
    ask, portions = StoreLog.ask_all, []

    async def slow(self, commands, **options):
        if commands[0][0] == "XRANGE":
            portions.append(commands[0][-1])
            if portions[-1] > 2:
                raise TimeoutError
        return await ask(self, commands, **options)

    monkeypatch.setattr(StoreLog, "ask_all", slow)
    monkeypatch.setattr(store_log, "SEGMENT_EVENTS", 8)
    send([f"e{number}" for number in range(5)], users=["u1"])
    assert archive_now().moved == 5
    assert portions[:3] == [8, 4, 2]
    assert len(read_archive(folder)) == 5


def test_events_too_large_for_one_reply_are_archived(archive_now, raw, folder, monkeypatch):
    """What the connection refuses to take at once is asked for in halves, and the other partitions are archived."""
    monkeypatch.setattr("service.store.multiplexer.MAX_REPLY_BYTES", 8_000)
    monkeypatch.setattr(store_log, "SEGMENT_EVENTS", 64)
    for user in ("u1", "u2"):
        for number in range(64):
            record = json.loads(event_record(f"e{number}", user)) | {"properties": {"note": "x" * 900}}
            raw.xadd(name_keys(user).log, {"e": json.dumps(record)})
    assert archive_now().moved == 128
    assert in_log(raw) == 0
    assert len(read_archive(folder)) == 128


def test_the_largest_events_fit_one_reply(event):
    """As many as are asked for at once, each as large as the API takes it."""
    text = '"' * 500  # each is two bytes of JSON
    largest = event(user_id='"' * 256, item_id='"' * 256, event_id="e" * 64, properties={"p": text})
    assert store_log.SEGMENT_EVENTS * (len(largest.log_record()) + 100) < multiplexer.MAX_REPLY_BYTES


def test_many_erased_users_are_read_in_portions(archive_now, send, in_store, raw, folder):
    """More tombstones than one portion holds, each of which counts."""
    send(["a"])
    archive_now()
    others = {f"{number:032x}": "1763719498123 0-0" for number in range(3 * store_log.SCAN_USERS)}
    raw.hset(name_keys("u1").erased, mapping=others)
    in_store(lambda store: store.erase("u1"))
    assert archive_now().erased == 1
    assert {user for user, _ in read_archive(folder)} == {"u2", "u3"}


def test_files_are_private(archive_now, send, folder):
    """Also where the folder was there before, open to all."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    send(["a"])
    archive_now()
    assert folder.stat().st_mode & 0o077 == 0
    assert [path.name for path in folder.iterdir() if path.stat().st_mode & 0o077] == []


def test_a_group_is_let_in_to_the_segments_alone_and_out_again(archive_now, send, folder):
    """Those that were there before and those that come, to read; locks, ids and requests stay private."""

    def list_open():
        return {path.name for path in folder.iterdir() if path.stat().st_mode & 0o077}

    send(["a"])
    archive_now()
    with Archive(folder, group_access=True) as archive:
        archive.refresh()
        assert folder.stat().st_mode & 0o077 == 0o050
        assert list_open() == {path.name for path in folder.glob("*.jsonl.gz")} != set()
    send(["b"])
    archive_now(group_access=True)
    assert list_open() == {path.name for path in folder.glob("*.jsonl.gz")}
    assert {path.stat().st_mode & 0o077 for path in folder.glob("*.jsonl.gz")} == {0o040}
    with Archive(folder) as archive:
        archive.refresh()
        assert folder.stat().st_mode & 0o077 == 0
        assert list_open() == set()


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ResponseError("OOM command not allowed when used memory > 'maxmemory'."), "refused", r"refuses X \(OOM\)"),
        (ResponseError("NOPERM User archiver has no permissions"), "refused", r"refuses X \(NOPERM\)"),
        (ResponseError("WRONGTYPE Operation against a key"), "data", r"cannot do X \(WRONGTYPE\)"),
        (RedisConnectionError("Connection refused"), "connection", "cannot be reached"),
        (TimeoutError(), "timeout", "did not answer in time"),
        (OSError(28, "No space left on device"), "disk", "No space left on device"),
    ],
)
def test_fault_is_named(error, kind, said):
    """Each has its kind, for metrics, and its sentence; none is taken for another."""
    error.add_note("X")
    found, sentence = describe_failure(error)
    assert found == kind
    assert re.search(said, sentence)


def test_what_was_logged_before_an_erasure_leaves_whatever_its_time(archive_now, in_store, event, folder):
    """Events that the history forgot, later than the erasure by their own time, go by their place in the log."""
    ahead = [event(event_id=f"e{number}", timestamp_ms=4_000_000_000_000 - number) for number in range(5)]
    in_store(lambda store: store.append(ahead), history_length=1)
    archive_now()
    in_store(lambda store: store.erase("u1"))
    assert archive_now().erased == 5
    assert read_archive(folder) == []
    in_store(lambda store: store.append([event(event_id="back", timestamp_ms=4_000_000_000_000)]))
    assert archive_now() == Archived(1, 0)
    assert read_archive(folder) == [("u1", "back")]


def test_tombstones_end(archive_now, in_store, raw, folder):
    """After ERASED_DAYS, once the archive went through them; a user who never was is no other; others stay."""
    in_store(lambda store: store.erase("nobody"))
    in_store(lambda store: store.erase("u1"))
    key = name_keys("nobody").erased
    old = f"{int(time.time() * 1000) - archiver.ERASED_DAYS * 86_400_000 - 60_000:013d} 0-0"
    raw.hset(key, digest_user("nobody"), old)
    archive_now()
    assert not raw.exists(key)
    assert raw.exists(name_keys("u1").erased)
    archive_now()
    assert digest_user("nobody") not in (folder / f"{key[-3:-1]}.erased.json").read_text()


def test_tombstone_that_is_replaced_meanwhile_stays(archive_now, raw, monkeypatch):
    """The user is erased again between the archiver's look and its deletion."""
    key, digest = name_keys("u1").erased, digest_user("u1")
    raw.hset(key, digest, "1000000000000 0-0")
    erase = Archive.erase

    def erase_again(self, *arguments):
        raw.hset(key, digest, "4000000000000 0-0")
        return erase(self, *arguments)

    monkeypatch.setattr(Archive, "erase", erase_again)
    archive_now()
    assert raw.hget(key, digest) == b"4000000000000 0-0"


def test_store_is_asked_to_write_its_file_anew(archive_now, in_store, raw, monkeypatch):
    """Once for erasures that are some hours old, not for younger ones, and again when it failed."""
    rewrites: list[list[str]] = []
    ask = StoreLog.ask_all

    async def count(self, commands, **options):
        rewrites.extend(command for command in commands if command[0] == "BGREWRITEAOF")
        replies = await ask(self, commands, **options)
        return [re.sub(said[0], said[1], replies[0])] if commands[0][0] == "INFO" else replies

    as_it_is = said = (b"$^", b"")
    monkeypatch.setattr(StoreLog, "ask_all", count)
    in_store(lambda store: store.erase("u1"))
    archive_now()
    assert rewrites == []
    age_erasure(raw)
    archive_now()
    assert len(rewrites) == 1
    await_rewrite(raw)
    said = (b"aof_last_bgrewrite_status:ok", b"aof_last_bgrewrite_status:err")
    archive_now()  # finds that it failed, and asks again
    assert len(rewrites) == 2
    await_rewrite(raw)
    said = as_it_is
    for _ in range(2):
        archive_now()
    assert len(rewrites) == 2
    assert raw.hmget("nextitem:archive", "rewrite_wanted", "rewrite_asked") == [None, None]
    raw.hset("nextitem:archive", "rewrite_asked", 1)
    said = (rb"aof_last_rewrite_time_sec:\d+", b"aof_last_rewrite_time_sec:-1")
    archive_now()  # the store was started again before it ended
    assert len(rewrites) == 3
    rewrites.pop()
    await_rewrite(raw)
    said = as_it_is
    archive_now()
    raw.zadd(name_keys("u1").erasing, {digest_user("u1"): 1})  # pending still: the rewrite has it behind it
    archive_now()
    assert len(rewrites) == 2
    raw.hdel("nextitem:archive", "rewrite_covers")
    in_store(lambda store: store.erase("u2"))
    said = (b"aof_enabled:1", b"aof_enabled:0")
    age_erasure(raw)
    archive_now()
    assert len(rewrites) == 2


def age_erasure(raw):
    """Have what was erased be erased some hours ago."""
    hours_ago_ms = int(time.time() * 1000) - rewrite.REWRITE_AFTER_MS
    for key in raw.scan_iter("nextitem:erasing:*"):
        for digest in raw.zrange(key, 0, -1):
            raw.zadd(key, {digest: hours_ago_ms})
    if raw.hexists("nextitem:archive", "rewrite_wanted"):
        raw.hset("nextitem:archive", "rewrite_wanted", hours_ago_ms)


def await_rewrite(raw):
    """Wait until the store has written its file anew."""
    deadline_s = time.monotonic() + 120
    while raw.info("persistence")["aof_rewrite_in_progress"] or raw.info("persistence")["aof_rewrite_scheduled"]:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
