"""The store as docker-compose.yml configures it: what its users may do is what the code does, no more and no less."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError
from redis.retry import Retry

from model.contract.deployment.document import Deployment
from service.archive.archiver import Archiver
from service.archive.segments import Archive
from service.judge.events import LoggedEvent
from service.judge.log_reader import LogReader
from service.judge.worker_counts import observe_workers
from service.store.catalogue import CatalogueStore, Changed, ItemChange
from service.store.catalogue_version import read_version_reply
from service.store.connection import connect
from service.store.event import make_event, pack_event
from service.store.history import DAY_MS, HistoryStore
from service.store.history_import import HistoryImport
from service.store.records import History, Outcome
from service.store.variant_counts import add_variant_counts, read_variant_counts
from service.store.worker_states import WorkerState, remove_worker_state, write_worker_state

DEPLOY = Path(__file__).parents[2] / "deploy" / "valkey"
NOW_MS = 1_763_719_498_123
WORKER = WorkerState("instance:1", generation=1, champion="a", candidate=None, refused=None, at_ms=NOW_MS)


CONNECTING = {"auth", "hello", "client|setinfo", "client|setname", "client|maint_notifications"}
"""What redis-py calls by itself."""


def list_allowed(user: str) -> set[str]:
    """The commands that a user of the stack may call."""
    [line] = [line for line in (DEPLOY / "users.acl").read_text().splitlines() if line.startswith(f"user {user} ")]
    return {word.removeprefix("+") for word in line.split() if word.startswith("+")}


def count_calls(client: Redis) -> Counter[str]:
    """How often the server ran each command, for whomever."""
    return Counter(
        {
            name.removeprefix("cmdstat_"): done
            for name, counts in client.info("commandstats").items()
            if (done := counts["calls"] - counts["failed_calls"]) > 0  # rejected ones are not among the calls
        }
    )


@pytest.fixture
def service_client(log_in: Callable[[str], Redis]) -> Redis:
    """A plain client that is let in as the service."""
    return log_in("service")


async def use_everything(history: HistoryStore) -> None:
    """Every operation of the port, through every branch of its script."""
    times = (NOW_MS, NOW_MS + 2, NOW_MS + 1, NOW_MS + 3, NOW_MS + 4)  # the third is inserted between two
    for number, timestamp_ms in enumerate(times):
        event = make_event(
            user_id="u", item_id="i", event_type="view", event_id=str(number), timestamp_ms=timestamp_ms, now_ms=NOW_MS
        )
        assert (await history.append([event])).outcomes == [Outcome.ACCEPTED]
        await asyncio.sleep(0.002)  # marks age by the store's clock, and go at once with the options below
    assert (await history.append([event])).outcomes == [Outcome.DUPLICATE]
    [found] = await history.read_many(["u"])
    assert isinstance(found, History)
    assert len(found.item_ids) == 3
    assert (await history.export("u"))[0] == 5
    files = HistoryImport(history, history_length=9, idle_ms=DAY_MS)
    between = pack_event("u", "j", "view", None, NOW_MS + 3, record=True)
    assert await files.merge([("u", [between])]) == [Outcome.ACCEPTED]
    assert [user.user_id for user in await history.list_recent(1)] == ["u"]
    await history.erase("u")
    catalogue = CatalogueStore(history)
    await catalogue.change([ItemChange("i", "put", known=True, available=False)])
    changed = await catalogue.change([ItemChange("i", "put", known=True, available=True)])
    assert isinstance(changed, Changed)
    last = await catalogue.read_last_change()
    assert [one.entry_id for one in await catalogue.read_changes(last)] == [last]
    assert read_version_reply(await catalogue.read_version()) == changed.version
    assert await catalogue.read_records(0) == (0, {})
    await add_variant_counts(history._client, "f", 7, {"candidate:answers": 2})  # as a worker, with its own client
    assert (await read_variant_counts(history._client, "f", 7))["candidate"].answers >= 2
    await history.ping()
    assert (await history.inspect()).durable
    await write_worker_state(history._client, WORKER)
    await remove_worker_state(history._client, WORKER.worker)


def test_port_works_with_the_users_of_the_stack(in_store: Callable[..., Any]) -> None:
    """Appending, reading, exporting and looking at the store work as the user that the service has there."""
    in_store(use_everything, history_length=3, marks_kept=1, marks_age_ms=0, prefix="nextitem:port:")


def test_configuration_is_safe(in_store: Callable[..., Any]) -> None:
    """The service itself finds the stack's store durable, and bounded."""
    state = in_store(lambda history: history.inspect())
    assert state.durable
    assert state.memory_limit_bytes == 256 * 2**20


def test_allowed_is_exactly_what_is_used(in_store: Callable[..., Any], service_client: Redis) -> None:
    """The server counts what was called: each command that the user may call, and none besides."""
    in_store(use_everything, history_length=3, marks_kept=1, marks_age_ms=0, prefix="nextitem:exact:")
    assert count_calls(service_client).keys() - CONNECTING == list_allowed("service")


@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "SCAN 0",
        "CONFIG SET appendfsync no",
        "CONFIG REWRITE",
        "SHUTDOWN NOSAVE",
        "ACL LIST",
        "ACL SETUSER service allcommands",
        "EVAL return(1) 0",
        "FUNCTION LIST",
        "SCRIPT FLUSH",
        "MONITOR",
        "SAVE",
        "REPLICAOF 127.0.0.1 6379",
        "MODULE LIST",
        "CLIENT LIST",
        "SET nextitem:version:{00}:u 1",
        "EXPIRE nextitem:log:{00} 1",
        "XTRIM nextitem:log:{00} MAXLEN 0",
        "DEL other",
        "GET other",
        "LRANGE nextite 0 -1",
    ],
)
def test_service_may_not(service_client: Redis, command: str) -> None:
    """What would lose data, spy or leave the prefix is refused to the service's user."""
    with pytest.raises(NoPermissionError):
        service_client.execute_command(*command.split())


def test_archiver_moves_the_log_and_may_do_nothing_else(
    store: tuple[Path, Path], prepare: Any, log_in: Callable[[str], Redis], in_store: Callable[..., Any], tmp_path: Path
) -> None:
    """As its own user it archives and erases; histories, and what would lose them, are refused to it."""
    events = [make_event(user_id=user, item_id="i", event_type="view", now_ms=NOW_MS) for user in ("a", "b")]
    in_store(lambda history: history.append(events))
    in_store(lambda history: history.erase("a"))
    socket, secrets = store

    async def archive() -> int:
        client = connect(f"unix://archiver@{socket}", password_file=secrets / prepare.ARCHIVER_PASSWORD)
        try:
            with Archive(tmp_path) as archive:
                return (await Archiver(client, archive).run()).moved
        finally:
            await client.aclose()

    assert asyncio.run(archive()) == 1
    client = log_in("archiver")
    for command in ("LRANGE nextitem:history:{00}:u 0 -1", "XADD nextitem:log:{00} * e x", "FLUSHALL", "CONFIG GET *"):
        with pytest.raises(NoPermissionError):
            client.execute_command(*command.split())


def test_judge_may_do_exactly_what_it_does(
    store: tuple[Path, Path], prepare: Any, service_client: Redis, in_store: Callable[..., Any]
) -> None:
    """As its own user it reads the log, histories and what workers tell, and may call no command besides."""
    event = make_event(user_id="j", item_id="i", event_type="view", now_ms=NOW_MS)
    in_store(lambda history: history.append([event]))
    expired = replace(WORKER, at_ms=0)
    in_store(lambda history: write_worker_state(history._client, expired))
    socket, secrets = store

    async def judge() -> list[object]:
        client = connect(f"unix://judge@{socket}", password_file=secrets / prepare.JUDGE_PASSWORD)
        reader = LogReader(client, {})
        try:
            await observe_workers(client, Deployment(generation=1, champion="a", candidate="b", mode="shadow"), 1)
            portion = await reader.read(recount=True)
            [found] = [one for one in portion.entries if isinstance(one, LoggedEvent) and one.user_id == "j"]
            return await reader.read_histories([found])
        finally:
            await reader.close()
            await client.aclose()

    before = count_calls(service_client)
    [history] = asyncio.run(judge())
    assert history == [event.entry()]
    called = count_calls(service_client) - before
    assert called.keys() - CONNECTING - {"info"} == list_allowed("judge")  # the last count's own


@pytest.mark.parametrize(
    "command",
    [
        # what it reads, it does not change
        "XADD nextitem:log:{00} * e x",
        "XDEL nextitem:log:{00} 1-1",
        "XTRIM nextitem:log:{00} MAXLEN 0",
        "HDEL nextitem:log:{00} x",
        "RPUSH nextitem:history:{00}:u x",
        "LTRIM nextitem:history:{00}:u 1 0",
        "HDEL nextitem:history:{00}:u x",
        "HINCRBY nextitem:variants:f:7 candidate:answers 1",
        "HDEL nextitem:variants:f:7 candidate:answers",
        "DEL nextitem:variants:f:7",
        "HSET nextitem:workers instance:1 x",
        "DEL nextitem:workers",
        # what it need not read
        "GET nextitem:version:{00}:u",
        "LRANGE nextitem:marks:{00}:u 0 -1",
        "LRANGE nextitem:order:{00}:u 0 -1",
        "HGETALL nextitem:erased:{00}",
        "HGETALL nextitem:erasing:{00}",
        "HGETALL nextitem:store",
        "HGETALL nextitem:archive",
        "HGETALL nextitem:lost_events",
        "XREAD STREAMS nextitem:erased:{00} 0",
        "XINFO STREAM nextitem:erased:{00}",
        "XINFO GROUPS nextitem:log:{00}",
        "HGETALL other",
        "HDEL nextitem:workers2 x",
        # what nobody but the operator, or nobody at all, needs
        "INFO",
        "KEYS *",
        "SCAN 0",
        "CONFIG GET *",
        "CLIENT LIST",
        "SLOWLOG GET",
        "ACL LIST",
        "ACL SETUSER judge allcommands",
        "EVAL return(1) 0",
        "SCRIPT LOAD return(1)",
        "PUBLISH channel x",
        "MONITOR",
        "BGREWRITEAOF",
        "SAVE",
        "REPLICAOF 127.0.0.1 6379",
        "SHUTDOWN NOSAVE",
        "FLUSHALL",
    ],
)
def test_judge_may_not(log_in: Callable[[str], Redis], command: str) -> None:
    """The judge changes nothing but the list of workers, and sees nothing that a trial does not need."""
    with pytest.raises(NoPermissionError):
        log_in("judge").execute_command(*command.split())


def test_debugging_is_off(service_client: Redis) -> None:
    """DEBUG, which can crash the server, is off for everybody."""
    with pytest.raises(ResponseError, match="DEBUG command not allowed"):
        service_client.execute_command("DEBUG", "SLEEP", "0")


def test_loaded_scripts_have_no_more_power(service_client: Redis) -> None:
    """A script of one's own may be loaded, but is refused what its user is refused."""
    digest = service_client.script_load("return redis.call('SET', KEYS[1], 1)")
    with pytest.raises(RedisError, match=r"(?i)can't run this command|no permission|NOPERM"):
        service_client.evalsha(digest, 1, "nextitem:version:{00}:u")


def test_nobody_comes_in_without_a_name(store: tuple[Path, Path]) -> None:
    """No name, another's password or the password of the probe open nothing."""
    strangers: list[dict[str, Any]] = [
        {},
        *({"username": user, "password": "none"} for user in ("service", "operator", "default")),
        {"username": "default", "password": ""},
    ]
    for stranger in strangers:  # who tries once: redis-py takes a refusal for a broken connection
        with (
            Redis(unix_socket_path=str(store[0]), retry=Retry(NoBackoff(), 0), **stranger) as client,
            pytest.raises(AuthenticationError),
        ):
            client.ping()


def test_probe_may_only_ping(probe_client: Redis) -> None:
    """The health check's user, which needs no password, sees nothing."""
    assert probe_client.ping()
    for command in (["GET", "nextitem:version:{00}:u"], ["INFO"], ["CONFIG", "GET", "*"], ["EVAL", "return 1", 0]):
        with pytest.raises(NoPermissionError):
            probe_client.execute_command(*command)
