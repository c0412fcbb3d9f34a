"""Three times as many questions as the model can answer, with events beside them: what is still answered by the model.

`python -m benchmarks.reliability.overload`: a service over a store of its own, whose engine takes 50 ms for at most two
questions, 40 answers a second at best, which costs little of a core. First events alone, then more and more questions
beside them; last, half of the capacity beside large batches, which are many times what can be answered. Ends with
status 1 when at three times the capacity the model answers less than 80 % of its best, when beside batches it answers
less than 80 % of the lone questions or the batches too late, when an event is refused, or when a question gets no
answer.
"""

import argparse
import asyncio
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.harness.console import say
from benchmarks.harness.cpu_time import compare, look
from benchmarks.harness.open_loop import Outcome, encode_post, fire, percentile, plan
from benchmarks.harness.processes import ServiceProcess
from service.embedded.server import EmbeddedStore

BUNDLE = Path("tests/serving/bundle")
RUN_S = 0.05
BATCH = 2
CAPACITY = BATCH / RUN_S
"""Answers of the model a second."""
SHARES = (0.0, 0.5, 0.75, 1.0, 1.25, 3.0)
"""How many questions are asked, as a share of the capacity; the last is the overload."""
EVENTS = 20.0
"""Events a second, one in a request."""
LEAST_GOODPUT = 0.8
QUESTIONS = 256
BATCHES = 8.0
"""Batches a second of so many questions, fifty times the capacity."""
LATEST_BATCH_S = 0.6
"""Twice the time that each has."""
BESIDE_BATCHES = 0.5
"""How many lone questions are asked beside them, as a share of the capacity."""
ASK_MANY = encode_post(
    "/recommend/batch", b'{"requests":[%b]}' % b",".join([b'{"user_id":"u1","items":["i01","i02"]}'] * QUESTIONS)
)
ASK = encode_post("/recommend", b'{"user_id":"u1","items":["i01","i02"]}')
SEND = encode_post("/events", b'{"user_id":"u2","item_id":"i03"}')


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one rate of questions."""

    rate: float
    seconds: float
    asks: Sequence[Outcome]
    sends: Sequence[Outcome]
    batches: Sequence[Outcome] = ()

    @property
    def goodput(self) -> float:
        """Answers a second by the model, from the whole history, in time."""
        return sum(each.source == "model" and not each.degraded for each in self.asks) / self.seconds

    @property
    def refusals(self) -> list[Outcome]:
        """Those for whom there was no room: 503, or popular items at once."""
        return [each for each in self.asks if each.status == 503 or each.degraded == "overloaded"]

    @property
    def failed(self) -> int:
        """Questions and batches with neither 200 nor a refusal."""
        return sum(each.status not in (200, 503) for each in (*self.asks, *self.batches))

    @property
    def events_refused(self) -> int:
        """Events that were not acknowledged."""
        return sum(each.status != 200 for each in self.sends)


async def main(seconds: float, folder: Path) -> int:
    """All rates, one after the other; the exit status."""
    (folder / "fault").write_text(f"slow {RUN_S}")
    with EmbeddedStore(folder / "data") as store:
        options = ("--fault-file", str(folder / "fault"), "--max-batch", str(BATCH))
        service = ServiceProcess(
            store.url, BUNDLE, folder / "service.log", *options, module="benchmarks.harness.faulty_engine"
        )
        await service.start()
        port = urlsplit(service.url).port or 0
        await ask(port, rate=CAPACITY / 4, seconds=1)  # connections and batches get going
        say(f"{'asked/s':>8}{'by model/s':>12}{'no room/s':>11}{'p50':>8}{'p99':>8}  | events 200  not     p50     p99")
        steps = []
        for share in SHARES:
            before = look(), look(service.process_id)
            steps.append(await ask(port, rate=share * CAPACITY, seconds=seconds))
            describe(steps[-1])
        crowd = await ask(port, rate=BESIDE_BATCHES * CAPACITY, seconds=seconds, batches=BATCHES)
        describe(crowd)
        mine, its = (compare(*turns) for turns in zip(before, (look(), look(service.process_id)), strict=True))
        await service.stop()
    say(f"At the last rate and with batches the service {its}; this process, which asks, {mine}")
    return max(judge(steps), judge_crowd(crowd))


async def ask(port: int, *, rate: float, seconds: float, batches: float = 0.0) -> Step:
    """Questions and events for a while, and so many batches a second."""
    asks = plan([ASK], rate=rate, seconds=seconds, label="ask") if rate else ()
    sends = plan([SEND], rate=EVENTS, seconds=seconds, label="send", seed=1)
    many = plan([ASK_MANY], rate=batches, seconds=seconds, label="many", seed=2) if batches else ()
    outcomes = await fire("127.0.0.1", port, sorted([*asks, *sends, *many], key=lambda shot: shot.at_s))
    kinds = {label: [each for each in outcomes if each.label == label] for label in ("ask", "send", "many")}
    return Step(rate, seconds, kinds["ask"], kinds["send"], kinds["many"])


def describe(step: Step) -> None:
    """A row of the table: p50 and p99 of those without room and of events, from when they were due."""
    refused_ms, sent_ms = (
        [1e3 * percentile((each.latency_s for each in outcomes), share) for share in (0.5, 0.99)]
        for outcomes in (step.refusals, step.sends)
    )
    acknowledged = len(step.sends) - step.events_refused
    say(
        f"{step.rate:>8.0f}{step.goodput:>12.1f}{len(step.refusals) / step.seconds:>11.1f}"
        f"{_spell(refused_ms[0])}{_spell(refused_ms[1])}  |{acknowledged:>11,}{step.events_refused:>5,}"
        f"{_spell(sent_ms[0])}{_spell(sent_ms[1])}"
    )


def judge(steps: Sequence[Step]) -> int:
    """Say whether the last rate kept what is promised; the exit status."""
    *_, flood = steps
    peak = max(step.goodput for step in steps)
    share = flood.goodput / peak if peak else 0.0
    refused = sum(step.events_refused for step in steps)
    failed = sum(step.failed for step in steps)
    kept = share >= LEAST_GOODPUT and not refused and not failed
    say(
        f"At {flood.rate / CAPACITY:g} times the capacity the model answers {100 * share:.0f} % of its best "
        f"({flood.goodput:.1f} of {peak:.1f} a second); events refused: {refused}; no answer: {failed}"
    )
    say(f"Promised: {100 * LEAST_GOODPUT:.0f} %, none, none: {'kept' if kept else 'NOT KEPT'}")
    return 0 if kept else 1


def judge_crowd(crowd: Step) -> int:
    """Say whether lone questions and events were answered beside batches; the exit status."""
    share = crowd.goodput * crowd.seconds / len(crowd.asks)
    answered_s = [each.latency_s for each in crowd.batches if each.status == 200]
    late = bool(answered_s) and percentile(answered_s, 0.5) > LATEST_BATCH_S
    kept = share >= LEAST_GOODPUT and not crowd.events_refused and not crowd.failed and not late
    say(
        f"Beside {len(crowd.batches)} batches of {QUESTIONS} the model answers {100 * share:.0f} % of lone questions; "
        f"events refused: {crowd.events_refused}; no answer: {crowd.failed}; "
        f"batches answered: {len(answered_s)}, p50 {1e3 * percentile(answered_s, 0.5):.0f} ms"
    )
    limit = f"{1e3 * LATEST_BATCH_S:.0f} ms"
    say(f"Promised: {100 * LEAST_GOODPUT:.0f} %, none, none, {limit}: {'kept' if kept else 'NOT KEPT'}")
    return 0 if kept else 1


def _spell(milliseconds: float) -> str:
    return " " * 8 if math.isnan(milliseconds) else f"{milliseconds:>5.0f} ms"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.overload", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=10, help="how long each rate is held (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="overload-") as temporary:
        try:
            sys.exit(asyncio.run(main(given.seconds, Path(temporary))))
        except KeyboardInterrupt:
            sys.exit(130)
