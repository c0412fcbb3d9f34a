"""Faults that are planted in a service show in the view Health, with the right reason: `-rP` prints how soon."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from redis import Redis

from service.embedded.server import EmbeddedStore

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect
expect.set_options(timeout=20_000)  # machines may be busy

MOST_S = 50
"""5 s on a machine of one's own: docs/how-to/console.md has what it takes there."""


@pytest.fixture
def bundle(root):
    """One of the bundles, without a folder to follow."""
    return next(root.glob("*-bert4rec"))


def await_fault(page, fault, reason, route, *, planted_s, ready=False):
    """Wait until the view names the reason among the problems, and that of not being ready; prints the seconds."""
    row = page.locator("section:has(#problems) tbody tr", has_text=reason).filter(has_text=route)
    row.first.wait_for(timeout=1000 * MOST_S)  # it looks at each frame, where `expect` looks once a second
    if not ready:
        page.locator(".reasons", has_text=reason).wait_for(timeout=1000 * MOST_S)
    took_s = time.monotonic() - planted_s
    print(f"{fault}: shown as {reason} of {route} after {took_s:.1f} s")  # noqa: T201 - the figure
    assert took_s < MOST_S


def test_an_engine_that_fails_and_a_queue_that_is_full(view, serve, bundle, tmp_path, keep_picture):
    """Within seconds the view names the fault, the route and the request."""
    fault = tmp_path / "fault"
    module = ("benchmarks.harness.faulty_engine", "--fault-file", str(fault))
    url = serve(bundle, "--max-queue", "1", "--max-batch", "1", module=module)
    page = view(url, "health")
    expect(page.get_by_role("status")).to_contain_text("Ready")
    expect(page.get_by_text("None. Degraded answers")).to_be_visible()
    planted_s = time.monotonic()
    fault.write_text("raise")
    httpx.post(f"{url}/recommend", json={"items": ["i01"]}, headers={"x-request-id": "shop-41"}).raise_for_status()
    await_fault(page, "engine raises", "engine_unavailable", "/recommend", planted_s=planted_s)
    expect(page.get_by_text("shop-41")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("Degraded")
    keep_picture(page, "health")
    fault.write_text("slow 0.5")
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(12) as pool:
        planted_s = time.monotonic()
        body = {"items": ["i01"], "timeout_ms": 2000}
        asked = [pool.submit(client.post, f"{url}/recommend", json=body) for _ in range(12)]
        await_fault(page, "queue full", "overloaded", "/recommend", planted_s=planted_s, ready=True)
        for question in asked:
            question.result().raise_for_status()


def test_a_store_that_is_unsafe_and_then_gone(view, serve, bundle, short_folder):
    """Each shows in the service's state, in the store's and among the problems; the page goes on."""
    with EmbeddedStore(short_folder / "unsafe") as store:
        url = serve(bundle, "--redis-url", store.url)
        page = view(url, "health")
        event = {"user_id": "c4n4ry", "item_id": "i01"}
        planted_s = time.monotonic()
        with Redis.from_url(store.url) as raw:
            raw.config_set("appendfsync", "everysec")
        while httpx.post(f"{url}/events", json=event).status_code != httpx.codes.SERVICE_UNAVAILABLE:
            assert time.monotonic() < planted_s + MOST_S  # the last look was a moment ago
        await_fault(page, "store unsafe", "store_not_durable", "/events", planted_s=planted_s)
        expect(page.locator("section:has(#store)")).to_contain_text("no: events are refused")
        planted_s = time.monotonic()
        os.kill(store.pid, signal.SIGKILL)
        httpx.post(f"{url}/recommend", json={"user_id": "c4n4ry"}, timeout=30).raise_for_status()
        await_fault(page, "store killed", "store_unavailable", "/recommend", planted_s=planted_s)
        expect(page.locator("section:has(#store)")).to_contain_text("It does not answer")
        expect(page.locator("section:has(#workers)")).to_contain_text("What they serve is not known")
        assert "c4n4ry" not in page.content()
