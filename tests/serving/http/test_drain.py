"""Told to stop under load: what was accepted is answered, and whoever asks learns in time that it is about to stop.

DRAIN_TIMES=20, as `make drain` sets it, stops or replaces so many times instead of once, with models that take as long
to load as the first time and longer than ten seconds.
"""

import asyncio
import os
import signal
import socket
import time
from itertools import count

import httpx
import pytest

from benchmarks.harness.open_loop import IDLE_LIMIT_S, Shot, encode_post, fire

TIMES = int(os.environ.get("DRAIN_TIMES", "1"))

ASK = encode_post("/recommend", b'{"user_id":"u1","items":["i01"]}')
SEND = encode_post("/events", b'{"user_id":"u1","item_id":"i02"}')


def list_failures(process, outcomes):
    """Requests that were not answered with 200, but for events that a slow store refused and the log tells of."""
    store_was_slow = any(entry["logger"].startswith("service.store.") for entry in process.log)
    return [
        outcome
        for outcome in outcomes
        if outcome.status != 200 and not (store_was_slow and (outcome.label, outcome.status) == ("send", 503))
    ]


def plan_load():
    """Sixty requests a second, a quarter of them events, for as long as they are taken."""
    return (Shot(n / 60, SEND, "send") if n % 4 == 0 else Shot(n / 60, ASK, "ask") for n in count())


async def serve_until_red(process):
    """Load from a proxy that looks at readiness, and a SIGTERM: what became of it, and what red looked like."""
    host, port = process.url.removeprefix("http://").split(":")
    stop = asyncio.Event()
    load = asyncio.create_task(fire(host, int(port), plan_load(), stop=stop))
    await asyncio.sleep(0.5)
    process.signal(signal.SIGTERM)
    async with httpx.AsyncClient(base_url=process.url) as http:
        while (ready := await http.get("/health/ready")).status_code == 200:
            pass
        stop.set()
        still = await http.post("/recommend", json={"items": ["i01"]})
    return await load, (ready.status_code, ready.json()["status"], ready.headers["connection"], still.status_code)


@pytest.mark.parametrize("workers", [1, 2])
def test_told_to_stop_under_load_it_fails_nobody(start_process, wait_until_gone, list_complaints, workers):
    """Time after time: every request that was sent while it was ready is answered with 200, and the end is in order."""
    answered = 0
    for _ in range(TIMES):
        process = start_process("--workers", str(workers), "--drain-delay-s", "2")
        family = process.family()
        outcomes, red = asyncio.run(serve_until_red(process))
        assert red == (503, "draining", "close", 200)
        assert list_failures(process, outcomes) == []
        assert len(outcomes) >= 20
        assert process.wait() == 0
        assert wait_until_gone(family) == set()
        assert list_complaints(process) == []
        answered += len(outcomes)
    print(f"{TIMES} x SIGTERM, {workers} at work: {answered} requests, each answered with 200")  # noqa: T201 - the figure


async def serve_while_replaced(process):
    """Load from clients that keep their connections, and a SIGHUP: what became of them, and what readiness said."""
    host, port = process.url.removeprefix("http://").split(":")
    before, stop, said = process.workers(), asyncio.Event(), set()
    load = asyncio.create_task(fire(host, int(port), plan_load(), stop=stop))
    await asyncio.sleep(0.5)
    process.signal(signal.SIGHUP)
    deadline = time.monotonic() + 120
    while (workers := await asyncio.to_thread(process.workers)) & before or len(workers) != 2:
        assert time.monotonic() < deadline
        async with httpx.AsyncClient(base_url=process.url) as http:
            answer = (await http.get("/health/ready")).json()
            said |= {answer["status"], *answer["reasons"]}
        await asyncio.sleep(0.1)
    stop.set()
    return await load, said


def test_replaced_under_load_it_fails_nobody(start_process, hooked, list_complaints):
    """Time after time: both workers are replaced, each request is answered with 200, and it is ready throughout."""
    # Longer than a client keeps a connection that it does not use: an idle one hears of nothing before it is closed.
    process = start_process("--workers", "2", "--drain-delay-s", str(IDLE_LIMIT_S + 1))
    answered = 0
    for number in range(TIMES):
        (hooked / "load_s").write_text("11" if number >= 3 else "0")
        outcomes, said = asyncio.run(serve_while_replaced(process))
        assert list_failures(process, outcomes) == []
        assert not said & {"draining", "starting", "worker_missing"}
        answered += len(outcomes)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert list_complaints(process) == []
    print(f"{TIMES} x SIGHUP, 2 at work: {answered} requests, each answered with 200")  # noqa: T201 - the figure


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", [1, 2])
def test_told_twice_it_ends_at_once(start_process, wait_until_gone, workers, number):
    """The second signal waits for nothing: neither for the delay nor for a request that is not finished."""
    process = start_process("--workers", str(workers), "--drain-delay-s", "60")
    family = process.family()
    host, port = process.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Content-Length: 100\r\n\r\n{")
        process.signal(number)
        with httpx.Client(base_url=process.url) as http:
            while http.get("/health/ready").status_code == 200:
                pass
        process.signal(number)
        assert process.wait() == 0
    assert wait_until_gone(family) == set()


def test_stuck_model_does_not_keep_it_from_ending(start_process):
    """A run of the model that outlasts every deadline is left behind."""
    process = start_process("--drain-delay-s", "0", run_s=3600)
    answer = httpx.post(f"{process.url}/recommend", json={"items": ["i01"]})
    assert (answer.status_code, answer.json()["degraded"]) == (200, "deadline")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
