"""What the log says of failing calls to the store: at once, then once a minute, and when they succeed again."""

import asyncio
import logging

import pytest
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from service.errors import StoreUnavailable
from service.store.connection import connect
from service.store.failures import LOG_AGAIN_S, RECOVERED_AFTER_S, FailureLog, classify
from service.store.history import HistoryStore


@pytest.fixture
def failures(clock):
    """A log of failures with that clock."""
    return FailureLog(clock=clock)


def test_first_failure_is_told_at_once_and_then_once_a_minute(failures, clock, caplog):
    """With what to do, and how many there were; a new reason is told at once, too."""
    for second in range(150):
        clock.now_s += 1
        failures.failed("reads", RedisConnectionError("x"), kind="connection")
        if second == 70:
            failures.failed("reads", ResponseError("LOADING it"), kind="refused")
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in said] == [
        "Store reads fail (connection, ConnectionError)",
        "Store reads fail (connection, ConnectionError)",
        "Store reads fail (refused, LOADING)",
        "Store reads fail (connection, ConnectionError)",
    ]
    assert "Check that it runs and that its address is right." in said[0]
    assert [record.fields["failures"] for record in caplog.records] == [1, 1 + LOG_AGAIN_S, 72, 2 + 2 * LOG_AGAIN_S]


def test_recovery_is_told_once_nothing_failed_for_a_while(failures, clock, caplog):
    """Successes between failures are no recovery; what is another kind of call neither ends it nor is ended."""
    caplog.set_level(logging.WARNING)
    for _ in range(20):
        failures.failed("appends", TimeoutError(), kind="timeout")
        clock.now_s += RECOVERED_AFTER_S / 2
        failures.succeeded("appends")
    failures.failed("reads", TimeoutError(), kind="timeout")
    caplog.clear()
    clock.now_s += RECOVERED_AFTER_S
    failures.succeeded("appends")
    failures.succeeded("appends")
    assert [record.getMessage() for record in caplog.records] == ["Store appends succeed again, after 20 failures"]
    failures.failed("appends", TimeoutError(), kind="timeout")
    assert caplog.records[-1].levelname == "ERROR"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RedisConnectionError("x"), "connection"),
        (ConnectionRefusedError(), "connection"),
        (TimeoutError(), "timeout"),
        (AuthenticationError("x"), "refused"),
        (ResponseError("NOAUTH Authentication required."), "refused"),
        (ResponseError("MOVED 7 10.0.0.1:6379"), "refused"),
        (ResponseError("ERR max number of clients reached"), "refused"),
        (ResponseError("WRONGTYPE a key"), "damaged"),
        (ResponseError("ERR unknown command"), "script"),
        (TypeError(), "script"),
    ],
)
def test_each_failure_has_its_kind(error, kind):
    """The label of nextitem_store_errors_total."""
    assert classify(error) == kind


def test_store_that_is_away_is_told_at_once_and_when_it_is_back(store_url, tmp_path, caplog, monkeypatch):
    """One line for a hundred calls, and one when it answers."""
    monkeypatch.setattr("service.store.failures.RECOVERED_AFTER_S", 0)
    alias = tmp_path / "s"

    async def main():
        store = HistoryStore(connect(f"unix://{alias}"), read_timeout_s=10.0)
        for _ in range(100):
            with pytest.raises(StoreUnavailable):
                await store.ping()
        alias.symlink_to(store_url.removeprefix("unix://"))
        await store.ping()
        await store.close()

    asyncio.run(main())
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("Store reads fail (connection, ConnectionError): it cannot be reached.")
    assert last == "Store reads succeed again, after 100 failures"


def test_impatient_reads_are_no_failure_of_the_store(in_store, caplog):
    """Who gives the store no time learns nothing about it, and neither does the log."""

    async def scenario(store):
        with pytest.raises(StoreUnavailable):
            await store.read_many(["u1"], within_s=0.0)

    in_store(scenario)
    assert caplog.records == []
