"""What workers count of a canary adds up in the store, over both servers, and expires."""

import asyncio
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from service.store.variant_counts import (
    KEPT_S,
    RUN_BOUNDS_S,
    VariantCounts,
    VariantTally,
    add_variant_counts,
    name_variant_counts,
    parse_variant_counts,
    read_variant_counts,
)


def count_some(tally):
    """Two answers of the champion, one of them degraded, and three of the candidate, of which it failed one."""
    for variant in ("champion", "champion", "candidate", "candidate", "candidate"):
        tally.add(variant, "answers")
    tally.add("champion", "degraded")
    tally.add("candidate", "failures")
    tally.add("candidate", "breakers_opened")
    for seconds in (0.0001, 0.0005, 0.00051, 60.0):
        tally.add_run("candidate", seconds)


def test_workers_add_up(store_url, raw):
    """Two workers write what they counted since they last wrote; the judge reads the sums, by folder and generation."""

    async def scenario():
        async with Redis.from_url(store_url) as client:
            for _worker in range(2):
                tally = VariantTally()
                count_some(tally)
                await add_variant_counts(client, "f", 7, tally.take())
                assert not tally.take()
            return [await read_variant_counts(client, *where) for where in (("f", 7), ("f", 8), ("g", 7))]

    counted, *others = asyncio.run(scenario())
    assert (counted["champion"].answers, counted["champion"].degraded) == (4, 2)
    candidate = counted["candidate"]
    assert (candidate.answers, candidate.failures, candidate.breakers_opened, candidate.degraded) == (6, 2, 2, 0)
    assert (candidate.runs[0], candidate.runs[1], candidate.runs[-1], sum(candidate.runs)) == (4, 2, 2, 8)
    assert others == [{"champion": VariantCounts(), "candidate": VariantCounts()}] * 2
    expires_ms = raw.pexpiretime(name_variant_counts("f", 7)) if raw.info()["redis_version"] >= "7" else None
    assert expires_ms is None or abs(expires_ms / 1000 - KEPT_S - time.time()) < 600


def test_counts_that_could_not_be_written_are_not_lost():
    """They are written with the next ones."""
    tally = VariantTally()
    count_some(tally)
    taken = tally.take()
    tally.add("champion", "answers")
    tally.put_back(taken)
    assert tally.take() == {**taken, "champion:answers": 3}


@given(st.floats(0, 20))
def test_a_run_counts_in_the_first_bucket_that_holds_it(seconds):
    """As many buckets as bounds, and one for what is longer."""
    tally = VariantTally()
    tally.add_run("champion", seconds)
    runs = parse_variant_counts({field: str(number) for field, number in tally.take().items()})["champion"].runs
    assert runs.index(1) == sum(bound_s < seconds for bound_s in RUN_BOUNDS_S)
    assert len(runs) == len(RUN_BOUNDS_S) + 1


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(st.dictionaries(st.text(max_size=20) | st.just("champion:answers"), st.text(max_size=5)))
def test_a_hash_that_somebody_else_wrote_is_read(fields):
    """Whatever stands there counts as 0 where it is no number."""
    assert parse_variant_counts(fields)["champion"].answers >= 0
