"""A store that answers anything but what was asked: each call is StoreUnavailable or sound, and soon over."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.errors import StoreUnavailable
from service.store.circuit_breaker import CircuitBreaker
from service.store.connection import connect
from service.store.durability import SAFE
from service.store.history import HistoryStore
from service.store.records import Appended, History, Outcome
from service.store.status import StoreState

REPLIES = (
    b"$-1\r\n",
    b"*-1\r\n",
    b":0\r\n",
    b":-7\r\n",
    b":9223372036854775807\r\n",
    b"+OK\r\n",
    b"+\xff\xfe\r\n",
    b"$0\r\n\r\n",
    b"$1\r\n7\r\n",
    b"$20\r\n99999999999999999999\r\n",
    b"*0\r\n",
    b"*1\r\n:1\r\n",
    b"*1\r\n$-1\r\n",
    b"*2\r\n:1\r\n:0\r\n",
    b"*2\r\n:1\r\n:9\r\n",
    b"*2\r\n:1\r\n$1\r\n0\r\n",
    b"*2\r\n+a\r\n:0\r\n",
    b"*2\r\n*0\r\n*0\r\n",
    b"*1\r\n*1\r\n*1\r\n*0\r\n",
    b"*1\r\n$29\r\n1763719498123456 i view - e-1\r\n",
    b"*1\r\n$26\r\n1763719498123 i view - e-1\r\n",
    b"-ERR no\r\n",
    b"-WRONGTYPE no\r\n",
    b"-MOVED 1 127.0.0.1:1\r\n",
    b"-\r\n",
    b"%1\r\n+a\r\n+b\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"_\r\n",
    b"*2147483647\r\n",
    b"$2147483647\r\n",
    b"nonsense\r\n",
    b"",
)


def spell_info(**names):
    """INFO of a store that is well, with whatever is given instead."""
    told = {"role": "master", "used_memory": 7, "maxmemory": 0, "cluster_enabled": 0, **names}
    text = "# Everything\r\n" + "".join(f"{name}:{value}\r\n" for name, value in told.items())
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


SETTINGS = b"*%d\r\n" % (2 * len(SAFE)) + b"".join(
    b"$%d\r\n%s\r\n" % (len(word), word.encode()) for pair in SAFE.items() for word in pair
)
INFOS = (spell_info(), spell_info(used_memory=""), spell_info(maxmemory="x", role="slave"), b"$3\r\na:b\r\n")
SOUND = {b"INFO": spell_info(), b"CONFIG": SETTINGS, b"PING": b"+PONG\r\n"}


async def converse(folder, replies, use, *, patience_s=0.1):
    """Run an async function of a HistoryStore whose server answers each command by its name."""

    async def answer(reader, writer):
        try:
            while head := await reader.readline():
                words = []
                for _ in range(int(head[1:])):
                    size = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(size + 2))[:-2])
                writer.write(replies.get(words[0].upper(), b"+OK\r\n"))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the end of the connection, or of the test
        finally:
            writer.close()

    patience = {"read_timeout_s": patience_s, "write_timeout_s": patience_s}
    path = folder / "s"
    path.unlink(missing_ok=True)
    async with await asyncio.start_unix_server(answer, path):
        store = HistoryStore(connect(f"unix://{path}"), **patience, reads_events=True)
        try:
            async with asyncio.timeout(10):
                return await use(store)
        finally:
            await store.close()


async def use_everything(store, event):
    """Every operation; what came of it, which is checked to be of its kind."""

    async def read_two():
        found = await store.read_many(["u1", "u2"])
        assert all(isinstance(each, History | StoreUnavailable) for each in found)
        for each in found:
            if isinstance(each, History):
                assert 0 <= each.version < 10**15
                assert each.last_event_at_ms is None or 0 <= each.last_event_at_ms < 10**13
        return found

    async def append():
        appended = await store.append([event(), event(user_id="u2")])
        assert isinstance(appended, Appended)
        assert all(isinstance(outcome, Outcome) for outcome in appended.outcomes)
        assert all(isinstance(version, int) for version in appended.versions.values())

    async def inspect():
        assert isinstance(await store.inspect(), StoreState)

    kinds = []
    for operation in (store.ping, read_two, append, inspect, lambda: store.export("u1"), lambda: store.erase("u1")):
        try:
            await operation()
        except StoreUnavailable as error:
            kinds.append(error.kind)
    return kinds


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No erasure of these waits for half a minute."""
    monkeypatch.setattr("service.store.history.ERASE_TIMEOUT_S", 0.1)


@pytest.fixture(scope="module")
def folder(short_folder):
    """Where the servers of this module listen."""
    (path := short_folder / "odd").mkdir()
    return path


ANSWERS = st.fixed_dictionaries(
    {
        b"INFO": st.sampled_from((*INFOS, *REPLIES)),
        b"CONFIG": st.sampled_from((SETTINGS, *REPLIES)),
        b"PING": st.sampled_from((b"+PONG\r\n", *REPLIES)),
        b"GET": st.sampled_from(REPLIES),
        b"LRANGE": st.sampled_from(REPLIES),
        b"EVALSHA": st.sampled_from(REPLIES),
        b"SCRIPT": st.sampled_from(REPLIES),
        b"XRANGE": st.sampled_from(REPLIES),
    }
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(replies=ANSWERS)
def test_any_reply_to_any_command(folder, event, replies):
    """Whatever comes, nothing else than StoreUnavailable is raised, and what is returned is of its kind."""
    asyncio.run(converse(folder, replies, lambda store: use_everything(store, event), patience_s=0.02))


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("command", [b"INFO", b"CONFIG", b"GET", b"LRANGE", b"EVALSHA"])
def test_one_odd_reply_of_a_store_that_is_well(folder, event, command, reply):
    """Each kind of reply to each command that a request leads to."""
    asyncio.run(converse(folder, {**SOUND, command: reply}, lambda store: use_everything(store, event)))


def test_what_no_store_explains_is_logged_with_its_frames_once(folder, event, caplog):
    """A failure that may be a bug of ours is not hidden: the first of a kind tells where it came from."""

    async def append_often(store):
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                await store.append([event()])

    asyncio.run(converse(folder, {**SOUND, b"EVALSHA": b":7\r\n"}, append_often))
    [record] = caplog.records
    assert record.getMessage().startswith("Store appends fail (script, TypeError): ")
    assert record.exc_info[0] is TypeError


def test_a_full_server_counts_for_the_breaker(folder):
    """Its error in place of a reply is a refusal, and no answer of a store that is well."""
    breaker = CircuitBreaker("reads")
    full = dict.fromkeys((b"GET", b"LRANGE"), b"-ERR max number of clients reached\r\n")

    async def read_often(store):
        for _ in range(25):
            with pytest.raises(StoreUnavailable), breaker.guard():
                await store.read_many(["u1"])

    asyncio.run(converse(folder, full, read_often))
    assert not breaker.closed
