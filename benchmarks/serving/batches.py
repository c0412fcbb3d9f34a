"""POST /recommend/batch: many questions in one request, counted by question."""

import itertools
from dataclasses import dataclass

from benchmarks.harness.closed_loop import Sample, ask_once, drive_closed, judge_http
from benchmarks.serving.roster import K, encode_json
from benchmarks.serving.servers import Server

PATH = "/recommend/batch"
QUESTIONS = 256
"""As many as a request may hold."""
CONNECTIONS = 2
"""One request is read and written while the other is answered."""
_TIMEOUT_MS = 2_000


@dataclass(frozen=True)
class Batches:
    """Requests of QUESTIONS users each."""

    server: Server
    payloads: list[bytes]

    @classmethod
    def find(cls, server: Server, users: list[str]) -> "Batches | None":
        """None where the route is not served."""
        endless = itertools.cycle(users)
        payloads = []
        for _ in range(-(-len(users) // QUESTIONS)):
            chosen = itertools.islice(endless, QUESTIONS)
            requests = [{"user_id": user_id, "k": K, "timeout_ms": _TIMEOUT_MS} for user_id in chosen]
            payloads.append(encode_json(PATH, {"requests": requests}))
        _, answer = ask_once(server.connect, payloads[0], judge_http(b""))
        return None if answer.startswith(b"HTTP/1.1 404 ") else cls(server, payloads)

    def run_closed(self, seconds: float) -> Sample:
        """A closed loop. Good are answers that come from the model without exception."""
        judge = judge_http(b'"source":"model","degraded":null', times=QUESTIONS)
        payloads = itertools.cycle(self.payloads)
        sample = drive_closed(self.server.connect, payloads, judge, connections=CONNECTIONS, seconds=seconds)
        sample.rows = QUESTIONS
        return sample
