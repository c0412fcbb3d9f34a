"""What asks /recommend beside the faults: each request counts for the fault that it met, and a bad answer shows."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.harness.open_loop import Outcome
from benchmarks.reliability.chaos.recommend_probe import CALM, Span, asking, judge, sort_out

SPANS = [Span("frozen", 10, 12), Span("killed", 20, 22)]


def ask(at_s, latency_s=0.01, status=200):
    """What became of one request."""
    return Outcome("", at_s, 0.0, latency_s, status, "", "")


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (ask(9.9), CALM),
        (ask(9.9, latency_s=0.2), "frozen"),
        (ask(11), "frozen"),
        (ask(12.1), CALM),
        (ask(21), "killed"),
        (ask(11, status=0), "frozen"),
        (ask(15, status=0), CALM),
    ],
)
def test_request_counts_for_the_fault_that_it_met(outcome, kind):
    """Sent before it and answered in it among them; of the others none has any."""
    found = sort_out([outcome], SPANS, killed="killed")
    assert found.keys() == {CALM, "frozen", "killed"}
    assert [name for name, asked in found.items() if asked.outcomes == [outcome]] == [kind]
    assert {asked.unserved for asked in found.values()} == {0}


def test_only_a_killed_service_is_excused():
    """No answer while it was killed is counted apart; a 503 of one that is there is not."""
    found = sort_out([ask(21, status=0), ask(21.5, status=503)], SPANS, killed="killed")
    assert (found["killed"].unserved, found["killed"].answered) == (1, 0.0)


@pytest.mark.parametrize(
    ("bad", "kept"),
    [
        ([], True),
        ([ask(1, status=503)], True),
        ([ask(1, status=503), ask(1, status=0)], False),
        ([ask(1, latency_s=0.46)] * 9, True),
        ([ask(1, latency_s=0.46)] * 12, False),
    ],
)
def test_promise_is_judged(bad, kept):
    """Of a thousand requests one may fail, and ten may be late."""
    outcomes = [*bad, *[ask(1)] * (1000 - len(bad))]
    assert judge(sort_out(outcomes, SPANS, killed="killed")) is kept


def test_service_that_moves_is_found_again():
    """Asked at one port and then at another, as after a restart, requests go on."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            seen[self.connection.getsockname()[1]].set()
            self.send_response(200)
            self.send_header("content-length", "0")
            self.send_header("connection", "close")
            self.end_headers()

        def log_message(self, *_):
            pass

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Service) for _ in range(2)]
    ports = [server.server_port for server in servers]
    seen = {port: threading.Event() for port in ports}
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    named = list(ports[:1])

    async def run():
        async with asking(lambda: f"http://127.0.0.1:{named[0]}") as asker:
            for port in ports:
                named[0] = port
                assert await asyncio.to_thread(seen[port].wait, 30)
        return asker.outcomes

    outcomes = asyncio.run(run())
    for server in servers:
        server.shutdown()
        server.server_close()
    assert {outcome.status for outcome in outcomes} == {200}
