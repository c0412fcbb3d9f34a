"""`nextitem-serve import`: what it stores is what POST /events stores, however often, and whatever interrupts it."""

import asyncio
import gzip
import json
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from redis import Redis

from service.cli import main
from service.embedded.server import EmbeddedStore
from service.errors import StoreUnavailable
from service.history_import import commands, sender
from service.ingest.parser import parse_events
from service.store import calls, durability
from service.store.connection import connect
from service.store.history import HistoryStore
from service.store.history_import import HistoryImport
from service.store.redis_keys import LOST_EVENTS, name_keys

NOW_MS = 1_763_719_498_123
USERS = 12
LENGTH = 40
"""Of the histories of these tests: some users have more events, most have fewer."""


@pytest.fixture(autouse=True)
def keep_signals():
    """The command sets what signals do; the tests' own process gets it back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def rows():
    """Events of a dozen users in no order, some of them twice; two users have far more than is remembered."""
    dice = random.Random(7)  # noqa: S311 - no secret
    made = [
        {
            "user_id": f"u{user}",
            "item_id": f"i{dice.randrange(9)}",
            "timestamp": NOW_MS - 1000 * dice.randrange(5000),
            "type": dice.choice(["view", "cart"]),
            "value": dice.choice([None, 1.0, 2.5]),
        }
        for user in range(USERS)
        for _ in range(130 if user < 2 else dice.randrange(1, LENGTH))
    ]
    made += made[:20]
    dice.shuffle(made)
    return made


def write_csv(path, rows):
    """A log of rows."""
    lines = [
        f"{row['user_id']},{row['item_id']},{row['timestamp']},{row['type']},{'' if value is None else value}"
        for row in rows
        for value in [row["value"]]
    ]
    path.write_text("user,item,timestamp,type,value\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def log(tmp_path, rows):
    """The same as a file."""
    return write_csv(tmp_path / "events.csv", rows)


@pytest.fixture
def command(store_url, capsys):
    """Run the command on the empty store. Its status, and what it wrote to stdout and stderr."""

    def run(*words):
        status = main(["import", *map(str, words), "--redis-url", store_url, "--history-length", str(LENGTH)])
        return (status, *capsys.readouterr())

    return run


def post(url, rows):
    """Store events as POST /events does, each user's in the order of time; export all users."""
    return asyncio.run(_post(url, rows))


async def _post(url, rows):
    store = HistoryStore(connect(url), history_length=LENGTH, read_timeout_s=10.0, write_timeout_s=10.0)
    try:
        ordered = sorted(rows, key=lambda row: row["timestamp"])
        for start in range(0, len(ordered), 100):
            parsed = parse_events(
                {"events": ordered[start : start + 100]},
                strict=True,
                event_types=("view", "cart"),
                now_ms=NOW_MS,
                on_rejected=lambda _: None,
            )
            await store.append(list(parsed.events.values()))
        return {f"u{user}": await store.export(f"u{user}") for user in range(USERS)}
    finally:
        await store.close()


def export(url):
    """What GET /users/{id}/history tells of all users."""
    return post(url, [])


def histories(exported):
    """Without versions."""
    return {user: events for user, (_, events) in exported.items()}


def snapshot(raw):
    """All keys with their content, but for the moments in which things arrived."""
    held = {}
    for key in raw.keys("nextitem:*"):
        kind = raw.type(key)
        if kind == b"list":
            held[key] = [entry[14:] if b":order:" in key else entry for entry in raw.lrange(key, 0, -1)]
        elif kind == b"hash":
            held[key] = raw.hgetall(key)
        elif kind == b"stream":
            held[key] = [fields for _, fields in raw.xrange(key)]
        else:
            held[key] = raw.get(key)
    return held


def test_it_stores_what_post_events_stores(command, raw, store_url, rows, log):
    """With the log: histories, versions, exports. Without it the versions count no more than what is remembered."""
    expected = post(store_url, rows)
    raw.flushall()
    assert command(log, "--with-log")[0] == 0
    assert export(store_url) == expected
    raw.flushall()
    status, said, _ = command(log)
    assert status == 0
    found = export(store_url)
    assert histories(found) == histories(expected)
    assert {user: version for user, (version, _) in found.items()} == {
        user: min(version, LENGTH) for user, (version, _) in expected.items()
    }
    assert f"older than the newest {LENGTH} of their user" in said
    assert not raw.keys("nextitem:log:*")


def test_all_counts_add_up(command, rows, log):
    """Each event of the file is counted once."""
    _, said, _ = command(log)
    counted = [int(line[:13].replace(",", "")) for line in said.splitlines() if line.startswith("   ")]
    assert sum(counted) == len(rows)


@pytest.mark.parametrize("options", [(), ("--with-log",)])
def test_twice_is_once(command, raw, log, options):
    """Also when all marks have been forgotten meanwhile."""
    command(log, *options)
    before = snapshot(raw)
    status, said, _ = command(log, *options)
    assert (status, snapshot(raw)) == (0, before)
    assert said.splitlines()[-1].split()[0] != "0"
    assert "            0 stored" in said
    for key in [*raw.keys("nextitem:marks:*"), *raw.keys("nextitem:order:*")]:
        raw.delete(key)
    command(log, *options)
    assert snapshot(raw) == {
        key: held for key, held in before.items() if b":marks:" not in key and b":order:" not in key
    }


@pytest.fixture
def interrupted(command, monkeypatch):
    """Run the command with a Ctrl-C after so many small round trips."""

    def run(calls, *words):
        real = HistoryImport.merge
        done: list = []

        async def merge(self, users):
            if len(done) >= calls:
                signal.raise_signal(signal.SIGINT)
            done.append(users)
            return await real(self, users)

        with monkeypatch.context() as patch:
            patch.setattr(sender, "MERGE_EVENTS", 30)
            patch.setattr(HistoryImport, "merge", merge)
            return command(*words)

    return run


@pytest.mark.parametrize("options", [(), ("--with-log",)])
@pytest.mark.parametrize("calls", [0, 1, 4])
def test_interrupted_and_again_is_once(command, interrupted, raw, log, options, calls):  # noqa: PLR0917 - fixtures
    """Ctrl-C says how to go on, and the next run stores the rest."""
    command(log, *options)
    whole = snapshot(raw)
    raw.flushall()
    status, _, complaint = interrupted(calls, log, *options)
    assert status == 130
    assert "run the same command again" in complaint
    assert snapshot(raw) != whole
    assert command(log, *options)[0] == 0
    assert sort_logs(snapshot(raw)) == sort_logs(whole)


def sort_logs(held):
    """A partition's log has the events of each user in order; which user comes first does not matter."""
    by_user: dict = {}
    for key, content in held.items():
        if b":log:" in key:
            for fields in content:
                record = json.loads(fields[b"e"])
                by_user.setdefault(record["user_id"], []).append(record)
    return by_user, {key: content for key, content in held.items() if b":log:" not in key}


def test_killed_and_again_is_once(raw, store_url, tmp_path):
    """Whenever the process dies by kill -9: the next run completes what it began."""
    log = write_csv(
        tmp_path / "long.csv",
        [
            {"user_id": f"u{n % 997}", "item_id": f"i{n % 50}", "timestamp": NOW_MS + n, "type": "view", "value": None}
            for n in range(20_000)
        ],
    )
    words = [sys.executable, "-m", "service.cli", "import", str(log), "--redis-url", store_url]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    until_s = time.monotonic() + 60
    while raw.dbsize() < 100 and process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert raw.dbsize() >= 100
    assert main(words[3:]) == 0
    found = snapshot(raw)
    raw.flushall()
    assert main(words[3:]) == 0
    assert found == snapshot(raw)


@pytest.fixture
def small_trips(monkeypatch):
    """Round trips of some twenty events, so that there are many."""
    monkeypatch.setattr(sender, "MERGE_EVENTS", 20)


@pytest.mark.usefixtures("small_trips")
def test_live_traffic_beside_it_is_not_lost(command, raw, store_url, log, rows):
    """Events that clients send meanwhile: the histories hold the newest of both, whatever came first."""
    live = [
        {"user_id": f"u{n % USERS}", "item_id": f"live{n}", "timestamp": NOW_MS - 4_000_500 + 9_000 * n, "type": "view"}
        for n in range(400)
    ]
    begun = threading.Event()

    def send():
        for start in range(0, len(live), 10):
            post(store_url, live[start : start + 10])
            begun.set()

    sending = threading.Thread(target=send)
    sending.start()
    try:
        assert begun.wait(10)
        assert command(log)[0] == 0
    finally:
        sending.join()
    found = export(store_url)
    raw.flushall()
    together = post(store_url, [*rows, *live])
    assert {user: [event.event_id for event in events] for user, events in histories(found).items()} == {
        user: [event.event_id for event in events] for user, events in histories(together).items()
    }
    assert {event.item_id for events in histories(found).values() for event in events} & {"live399"}


def test_a_dry_run_needs_no_store(tmp_path, log, capsys):
    """It reads and counts, and leaves nothing behind."""
    assert main(["import", str(log), "--dry-run", "--data-dir", str(tmp_path / "data")]) == 0
    said, complaint = capsys.readouterr()
    assert "Nothing was stored" in said
    assert complaint == ""
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("u1,i1,yesterday,view,", "cannot be read"),
        ("u 1,i1,1700000000000,view,", "the id of the user"),
        (f"u1,i1,{NOW_MS + 10**11},view,", "five minutes ahead"),
        ("u1,i1,-1700000000000,view,", "before 1970"),
        ("u1,i1,1700000000000,gaze,", "--event-types"),
        ("u1,i1,1700000000000,view,many", "is no number"),
        ("u1,i1,1700000000000,view,1,2", "6 fields"),
    ],
)
def test_a_bad_row_stops_everything_or_is_left_out(command, raw, log, line, what):
    """By default nothing is imported, and the line is named; --skip-bad counts it."""
    text = log.read_text()
    log.write_text(f"{text}{line}\n{line}\n")
    number = len(text.splitlines()) + 1
    status, _, complaint = command(log)
    assert status == 2
    assert "2 bad rows, so nothing was imported" in complaint
    assert f"events.csv, line {number}: " in complaint
    assert what in complaint
    assert raw.dbsize() == 0
    status, said, _ = command(log, "--skip-bad")
    assert status == 0
    assert f"            2 bad: {log}, line {number}: " in said
    assert len(export_users(raw)) == USERS


def export_users(raw):
    """The users with a history."""
    return raw.keys("nextitem:history:*")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("none.csv", None, "is not a file"),
        ("empty.csv", b"", "is empty"),
        ("columns.csv", b"a,b,c\n1,2,3\n", "--columns"),
        ("times.txt", b"u1 i1\nu1 i2\n", "no times"),
        ("log.parquet", b"PAR1", "write CSV or JSON lines"),
        ("torn.csv.gz", gzip.compress(b"user,item,timestamp\n" + b"u,i,1700000000\n" * 10**5)[:-50], "cannot be read"),
    ],
)
def test_a_file_that_is_no_log_is_refused(command, raw, tmp_path, name, content, what):  # noqa: PLR0917 - fixtures
    """In a sentence, before anything is stored."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    status, _, complaint = command(path)
    assert status == 2
    assert what in complaint
    assert "Traceback" not in complaint
    assert raw.dbsize() == 0


def test_options_leave_events_out(command, raw, rows, log):
    """By type, value, time and number; each is counted."""
    carts = [row for row in rows if row["type"] == "cart"]
    _, said, _ = command(log, "--types", "cart", "--with-log")
    assert f"{len(rows) - len(carts):>13,} of other types than --types" in said
    assert sum(raw.xlen(key) for key in raw.keys("nextitem:log:*")) == len(
        {(row["user_id"], row["item_id"], row["timestamp"]) for row in carts}
    )
    raw.flushall()
    command(log, "--before", "2025-11-21T09:00:00Z")
    times = [int(entry[:13]) for key in export_users(raw) for entry in raw.lrange(key, 0, -1)]
    assert max(times) < 1_763_715_600_000
    raw.flushall()
    _, said, _ = command(log, "--limit", "7")
    assert "7 events read" in said
    assert sum(raw.llen(key) for key in export_users(raw)) <= 7
    raw.flushall()
    valued = [row | {"value": row["value"] or 1.0} for row in rows]
    command(write_csv(log, valued), "--min-value", "2")
    values = {entry.split()[3] for key in export_users(raw) for entry in raw.lrange(key, 0, -1)}
    assert values == {b"2.5"}


def test_json_lines_and_old_times_are_read(command, raw, tmp_path):
    """Gzipped, with seconds of the last century, which POST /events would take for another unit."""
    path = tmp_path / "events.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"user_id": "u", "item_id": "i", "timestamp": 880000000}\n'))
    assert command(path)[0] == 0
    [entry] = raw.lrange(name_keys("u").history, 0, -1)
    assert entry.startswith(b"0880000000000 i view - d.")


def test_an_unsafe_store_is_refused_before_the_log_is_read(command, raw, settings, log):
    """As POST /events is; --durability relaxed goes on."""
    settings(appendonly="no")
    status, said, complaint = command(log)
    assert status == 1
    assert "the store may lose events" in complaint
    assert "events read" not in said
    assert raw.dbsize() == 0
    assert command(log, "--durability", "relaxed")[0] == 0


def test_a_store_that_rewrites_its_file_is_waited_for(command, raw, log, monkeypatch):
    """As an embedded one does after it starts with a file that has grown: it is asked until it is done."""
    answers = [{durability.REWRITING: "is 1"}] * 2
    monkeypatch.setattr(commands, "REWRITE_PAUSE_S", 0.0)
    monkeypatch.setattr(calls, "check_persistence", lambda _info: answers.pop() if answers else {})
    status, said, _ = command(log)
    assert status == 0
    assert "Waiting until the store has rewritten" in said
    assert answers == []
    assert raw.dbsize() > 0


def test_a_store_that_is_not_there_is_said(log, tmp_path, capsys, monkeypatch):
    """In a sentence, without a frame."""
    monkeypatch.setattr(sender, "PATIENCE_S", 0.0)
    assert main(["import", str(log), "--redis-url", f"unix://{tmp_path}/none.sock"]) == 1
    complaint = capsys.readouterr().err
    assert "the store failed (connection)" in complaint
    assert "Traceback" not in complaint


def test_a_store_that_is_away_for_a_moment_is_waited_for(command, raw, log, monkeypatch):
    """A call that failed is repeated, and what it had stored is not stored twice."""
    command(log)
    whole = snapshot(raw)
    raw.flushall()
    monkeypatch.setattr(sender, "_PAUSE_S", 0.01)
    real = HistoryImport.merge
    failed: list = []

    async def merge(self, users):
        outcomes = await real(self, users)
        if len(failed) < 3:
            failed.append(outcomes)
            raise StoreUnavailable(kind="timeout")
        return outcomes

    monkeypatch.setattr(HistoryImport, "merge", merge)
    assert command(log)[0] == 0
    assert snapshot(raw) == whole


def test_a_full_store_is_said(command, raw, settings, log):
    """What is stored stays; the next run goes on."""
    settings(maxmemory=1)
    status, _, complaint = command(log)
    assert status == 1
    assert "the store failed (refused)" in complaint
    settings(maxmemory=0)
    assert command(log)[0] == 0
    assert len(export_users(raw)) == USERS


def test_damaged_users_are_counted(command, raw, log):
    """All others are imported; the status says that not all is well."""
    raw.set(name_keys("u3").history, "no list")
    status, said, _ = command(log)
    assert status == 1
    assert "NOT stored" in said
    assert len(export_users(raw)) == USERS


def test_the_embedded_store_stopped_and_running(short_folder, log, capsys):
    """Stopped, the command starts it, and it keeps what was imported; running, the command goes through its socket."""
    data_dir = short_folder / "imported"
    words = ["import", str(log), "--data-dir", str(data_dir), "--history-length", str(LENGTH)]
    assert main(words) == 0
    with EmbeddedStore(data_dir) as store, Redis.from_url(store.url) as client:
        first = snapshot(client)
        assert len([key for key in first if b":history:" in key]) == USERS
        assert main(words) == 0
        assert snapshot(client) == first
        assert client.get(LOST_EVENTS) is None
    assert "            0 stored" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [["--columns", "nonsense"], ["--before", "soon"], ["--limit", "0"], ["--types", "a b"], ["--ids", "odd"]],
)
def test_wrong_options_are_refused(log, words, capsys):
    """With status 2 and a sentence, before anything is read."""
    with pytest.raises(SystemExit) as caught:
        main(["import", str(log), *words])
    assert caught.value.code == 2
    assert f"argument {words[0]}: " in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--history-length", "0"], ["--event-types", "cart"], ["--time-zone", "Mars/One"]])
def test_wrong_settings_are_refused(log, words, capsys):
    """As the service refuses them; and a zone that there is not."""
    assert main(["import", str(log), "--dry-run", *words]) == 2
    assert capsys.readouterr().out == ""
