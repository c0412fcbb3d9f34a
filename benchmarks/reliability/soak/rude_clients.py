"""Clients that keep to no rules, beside the traffic: what they make the service hold must not stay."""

import asyncio
import contextlib
from collections.abc import Sequence

HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
PIPELINE = (b"GET /" + HOST + b"\r\n") * 6000
"""A quarter of a MiB of requests, sent at once by a client that reads no answer."""
UPLOAD = (
    b"POST /recommend/batch" + HOST + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (4 << 20)
) + b" " * (2 << 20)
"""Half of the largest body that there may be. The rest never comes: the service gives up after ten seconds."""
SILENCE = b""
EACH: Sequence[bytes] = (PIPELINE, UPLOAD, SILENCE)
STAY_S = 15.0
"""How long such a client stays: longer than the service waits for it."""


async def disturb(host: str, port: int, *, seconds: float, every_s: float = 0.5) -> int:
    """One client after the other, for so long; how many there were."""
    count = 0
    async with asyncio.TaskGroup() as group:
        for count in range(int(seconds / every_s)):
            group.create_task(_stay(host, port, EACH[count % len(EACH)], min(STAY_S, seconds - count * every_s)))
            await asyncio.sleep(every_s)
    return count


async def _stay(host: str, port: int, content: bytes, stay_s: float) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        _, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(content)
            await asyncio.sleep(stay_s)
        finally:
            writer.transport.abort()
