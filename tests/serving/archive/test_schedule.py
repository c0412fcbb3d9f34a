"""When the log is archived: now and every so often, in a process of its own, whatever went wrong the last time."""

import logging
import os
import signal
import time
from pathlib import Path

import pytest

from service.archive import asked, schedule
from service.archive.segments import Archive, FolderBusy
from service.errors import ArchiveFailed, StartFailed
from service.settings import Settings
from service.system import child_process

PATIENCE_S = 120.0


class Stopped(BaseException):
    """The process was told to stop."""


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            ArchiveFailed("refused", "the store refuses XTRIM (NOPERM)"),
            "Archiver run failed: the store refuses XTRIM (NOPERM)",
        ),
        (StartFailed("the password file cannot be read"), "the password file cannot be read"),
        (KeyError(b"e"), "trying again in 7 minutes"),
    ],
)
def test_failure_is_logged_and_tried_again(monkeypatch, caplog, tmp_path, failure, said):
    """Of any kind, one that nobody thought of among them."""
    runs, waits = [], []

    async def fail_once(*_, **__):
        runs.append(1)
        if len(runs) == 1:
            raise failure

    def wait(_, seconds):
        waits.append(seconds)
        if len(waits) == 2:
            raise Stopped

    monkeypatch.setattr(schedule, "archive_once", fail_once)
    monkeypatch.setattr("service.archive.schedule.asked.wait_for_request", wait)
    with caplog.at_level(logging.WARNING, "service.archive.schedule"), pytest.raises(Stopped):
        schedule.archive_forever("unix:///store", Settings(bundle="b", archive_minutes=7), Archive(tmp_path))
    assert len(runs) == 2
    assert waits == [420, 420]
    [record] = caplog.records
    assert said in record.getMessage()


@pytest.fixture
def settings_for(store_url, tmp_path):
    """The settings of a service over the store, which archives to a folder that is not there yet."""

    def make(**given):
        return Settings(
            **{"bundle": Path("b"), "redis_url": store_url, "archive_dir": tmp_path / "deep" / "a", **given}
        )

    return make


def await_true(condition):
    """What a condition is once it is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found


def find_archivers():
    """Processes that archive and were started by this one."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            words = (status.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == os.getpid() and words[-3:] == [b"service.cli", b"archive", b""]:
            found.append(int(status.parent.name))
    return found


def test_archiver_is_another_process_and_comes_back(settings_for, store_url, raw, monkeypatch, caplog):
    """It yields to whoever answers, is started again when it is killed, and is gone when the context is."""
    monkeypatch.setattr(child_process, "RESTART_S", (0.05, 0.05))
    settings = settings_for()
    monkeypatch.setenv("NEXTITEM_ARCHIVE_DIR", "/elsewhere")  # the settings count, and what stands in them
    monkeypatch.setenv("NEXTITEM_REDIS_PASSWORD_FILE", "/elsewhere")
    with schedule.run_archiver(store_url, settings):
        await_true(lambda: raw.hget("nextitem:archive", "last_success"))
        [first] = find_archivers()
        assert os.getpriority(os.PRIO_PROCESS, first) >= os.getpriority(os.PRIO_PROCESS, 0) + 1
        raw.delete("nextitem:archive", "nextitem:store")
        for name in ("id", "store"):
            (settings.archive_dir / name).unlink()
        os.kill(first, signal.SIGKILL)
        await_true(lambda: raw.hget("nextitem:archive", "last_success"))
        [second] = find_archivers()
        assert second != first
    assert find_archivers() == []
    assert "Archiver process ended with status -9" in caplog.text


@pytest.mark.parametrize("once", [True, False])
def test_the_group_is_let_in_where_that_is_set(settings_for, store_url, once):
    """By a run of the command, and by the process that the service starts."""
    settings = settings_for(archive_group_access=True)
    if once:
        assert schedule.archive_store(settings, once=True, take_over=False) == 0
    else:
        with schedule.run_archiver(store_url, settings):
            await_true(lambda: settings.archive_dir.stat().st_mode & 0o777 == 0o750)
    assert settings.archive_dir.stat().st_mode & 0o777 == 0o750


def test_archiver_that_cannot_start_is_tried_again(settings_for, store_url, raw, monkeypatch, caplog):
    """While there are no more open files, for one."""
    monkeypatch.setattr(child_process, "RESTART_S", (0.05, 0.05))
    spawn, failures = child_process.ChildProcess._spawn, [OSError(24, "Too many open files")] * 2

    def fail_twice(self):
        if failures:
            raise failures.pop()
        return spawn(self)

    monkeypatch.setattr(child_process.ChildProcess, "_spawn", fail_twice)
    with schedule.run_archiver(store_url, settings_for()):
        await_true(lambda: raw.hget("nextitem:archive", "last_success"))
    assert caplog.text.count("Archiver process could not start: Too many open files") == 2


def test_archiver_ends_soon_when_told_to(settings_for, store_url):
    """Also when it was told to before it could begin."""
    for _ in range(3):
        with schedule.run_archiver(store_url, settings_for()):
            started_s = time.monotonic()
        assert time.monotonic() - started_s < child_process.STOP_LIMIT_S
        assert find_archivers() == []


def test_folder_that_cannot_be_is_said_at_the_start(settings_for, store_url, tmp_path):
    """Not once an hour."""
    (tmp_path / "file").write_text("")
    settings = settings_for(archive_dir=tmp_path / "file" / "a")
    with (
        pytest.raises(StartFailed, match=r"cannot use .*: Not a directory"),
        schedule.run_archiver(store_url, settings),
    ):
        pass


@pytest.mark.parametrize(
    ("minutes_ago", "said"),
    [(None, "no archiver run has succeeded"), (29, None), (31, "the last successful archiver run was 31 minutes ago")],
)
def test_check_tells_whether_a_run_succeeded_of_late(settings_for, raw, minutes_ago, said):
    """Within three intervals; it asks the store, and so knows of an archiver on any machine."""
    if minutes_ago is not None:
        raw.hset("nextitem:archive", "last_success", time.time() - 60 * minutes_ago)
    if said is None:
        assert schedule.check_archiver(settings_for(archive_minutes=10)) == 0
    else:
        with pytest.raises(StartFailed, match=said):
            schedule.check_archiver(settings_for(archive_minutes=10))


def test_check_of_a_store_that_is_away(settings_for):
    """One sentence."""
    with pytest.raises(StartFailed, match="the store does not answer"):
        schedule.check_archiver(settings_for(redis_url="unix:///nowhere"))


def test_running_archiver_archives_when_asked(settings_for, store_url, raw):
    """`archive --once` beside it waits for a run that began after it asked, and needs no store of its own."""
    settings = settings_for(archive_minutes=720)
    with schedule.run_archiver(store_url, settings):
        await_true(lambda: raw.hget("nextitem:archive", "last_success"))
        raw.hset("nextitem:archive", "last_success", 0)
        asking = settings.model_copy(update={"redis_url": None})
        assert schedule.archive_store(asking, once=True, take_over=False) == 0
        assert float(raw.hget("nextitem:archive", "last_success")) > 0
        assert not (settings.archive_dir / asked.ASKED).exists()
        raw.set("nextitem:store", "another store")
        with pytest.raises(StartFailed, match=r"archiver run failed: .*another store"):
            schedule.archive_store(asking, once=True, take_over=False)


def test_request_that_nobody_honours(settings_for, monkeypatch):
    """The process that has the folder may be of an older version; then it is said, and nobody waits forever."""
    monkeypatch.setattr(schedule, "ANSWER_WAIT_S", 0.3)
    settings = settings_for()
    with Archive(settings.archive_dir), pytest.raises(StartFailed, match="did not answer in time"):
        schedule.archive_store(settings, once=True, take_over=False)
    with Archive(settings.archive_dir), pytest.raises(FolderBusy), Archive(settings.archive_dir):
        pass


def test_once_takes_over_from_an_archiver_that_is_gone(settings_for, raw):
    """Its request is taken back: nobody else is left to honour it."""
    settings = settings_for()
    settings.archive_dir.mkdir(parents=True)
    asked.ask(settings.archive_dir)
    assert schedule.archive_store(settings, once=True, take_over=False) == 0
    assert not (settings.archive_dir / asked.ASKED).exists()
    assert raw.hget("nextitem:archive", "last_success")


def test_requests_are_answered_once(tmp_path):
    """Who asks while a request waits shares it; who asks after it was taken has another; damage asks for nothing."""
    first = asked.ask(tmp_path)
    assert asked.ask(tmp_path) == first
    assert asked.wait_for_request(tmp_path, 0) == first
    second = asked.ask(tmp_path)
    asked.answer(tmp_path, first, None)
    assert asked.read_reply(tmp_path, first) == asked.Reply(None)
    assert asked.read_reply(tmp_path, second) is None
    assert asked.take(tmp_path) == second
    assert asked.wait_for_request(tmp_path, 0) is None
    (tmp_path / asked.ANSWERED).write_bytes(b"[]")
    assert asked.read_reply(tmp_path, second) is None
