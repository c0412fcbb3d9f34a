"""The catalogue in a service of several processes: every worker knows a change, and a kill forgets none."""

import signal

import httpx


def ask(url, **fields):
    """An answer by a connection of its own, so that any worker may give it."""
    response = httpx.post(f"{url}/recommend", json={"items": ["i01"], "k": 20, "timeout_ms": 2000, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def test_every_worker_knows_at_once_and_no_kill_forgets(start_process):
    """Sold out in the next answers of both workers; after a kill -9 of all processes, too."""
    process = start_process("--workers", "2", embedded=True)
    for number in (2, 3, 4):
        path = f"{process.url}/items/i{number:02d}"
        assert httpx.patch(path, json={"available": False}, timeout=30).json()["changed"] == 1
        for _ in range(12):
            answer = ask(process.url)
            assert answer["catalogue"] == {"version": number - 1, "behind": False}
            assert not {f"i{gone:02d}" for gone in range(2, number + 1)} & {item["item_id"] for item in answer["items"]}
    assert httpx.put(f"{process.url}/items/new", json={"metadata": {"title": "Brand new"}}).json()["changed"] == 1
    process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    again = start_process("--workers", "2", embedded=True)
    for _ in range(6):
        answer = ask(again.url)
        assert answer["catalogue"] == {"version": 4, "behind": False}
        assert not {"i02", "i03", "i04"} & {item["item_id"] for item in answer["items"]}
        assert httpx.get(f"{again.url}/items/new").json()["metadata"] == {"title": "Brand new"}
