"""Items change under load: they are sold out and come back, and leave what a filter allows and enter it again.

`python -m benchmarks.reliability.sold_out`, or `make sold-out`. An answer that was asked for after a change was
acknowledged must know it, unless it says that it is behind: it lacks what is gone, and its catalogue is of no earlier
version. After each change the next answer is asked for at once, by a connection of its own, so that any worker may give
it: this one must have all that is there, too. Beside that others ask at random times, by every way to an answer. Ends
with status 1 if one answer is wrong, missing or fails, or when a change is refused for good.
"""

import argparse
import asyncio
import bisect
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx

from benchmarks.harness.bundles import seal
from benchmarks.harness.console import say
from benchmarks.harness.open_loop import Outcome, Shot, encode_post, fire, percentile
from benchmarks.harness.processes import ServiceProcess
from model.contract.attributes import gather_attributes
from model.contract.bundle import ATTRIBUTES, MANIFEST, METADATA, locate_bundle, read_bundle
from model.contract.bundle_content import encode_metadata
from service.embedded.server import EmbeddedStore

BUNDLE: Final = Path("tests/serving/bundle")
ITEMS: Final = [f"i{number:02d}" for number in range(1, 13)]
"""Those that are sold out and come back; the bundle has eight more, so that an answer with `k` 20 has all there are."""
OPEN: Final[dict[str, Any]] = {"field": "shelf", "in": ["open"]}
"""What filtered questions want. Items change between open and closed, too."""
CLOCK_S: Final = 0.0005
"""By how much a request may have left before it was due, as this process knows it."""
MOST_TRIES, PAUSE_S = 20, 0.2
"""How often a change is sent that gets 503, as clients do, and how long after that."""
QUESTIONS: Final[tuple[dict[str, Any], ...]] = (
    {"items": ["x/history"]},
    {"user_id": "u1"},
    {"items": ["x/history"], "ranker": "popular"},
    {"items": [], "candidate_item_ids": ITEMS},
    {"user_id": "u2", "items": ["x/history"], "return_metadata": ["title"]},
    {"items": ["x/history"], "filter": OPEN},
    {"user_id": "u3", "filter": OPEN, "max_per": {"field": "title", "count": 1}},
    {"items": ["x/history"], "timeout_ms": 10},
)
"""By history, by items, popular, among candidates, filtered; the last ones are often late, and so degraded."""
Kind = Literal["sold out", "closed"]
KINDS: Final[tuple[Kind, ...]] = ("sold out", "closed")


@dataclass
class Shelf:
    """What changed when, by time.perf_counter, and what was wrong in answers."""

    gone_s: dict[Kind, dict[str, float]] = field(default_factory=lambda: {"sold out": {}, "closed": {}})
    """Items whose change is acknowledged, and which are not on their way back: since when."""
    versions: list[tuple[float, int]] = field(default_factory=list)
    """When which version of the catalogue was acknowledged."""
    answers: int = 0
    behind: int = 0
    refused: int = 0
    """Changes that a slow store refused with 503, and that were sent again."""
    wrong: list[str] = field(default_factory=list)
    """Of answers that did not say that they are behind; and of those that did."""
    admitted: list[str] = field(default_factory=list)

    def check(self, answer: dict[str, Any], asked_s: float, *, filtered: bool = False, whole: bool = False) -> str:
        """What is wrong with an answer that was asked for at a time: an item that was gone then, or an old version.

        A `whole` one was asked for while nothing changed, and must have all that is there.
        """
        self.answers += 1
        catalogue = answer.get("catalogue", {"version": 0, "behind": False})
        self.behind += catalogue["behind"]
        found = [item["item_id"] for item in answer["items"]]
        gone = self.gone_s["sold out"] | (self.gone_s["closed"] if filtered else {})
        faults = [item_id for item_id in found if gone.get(item_id, asked_s) < asked_s]
        known = bisect.bisect_left(self.versions, (asked_s, 0))
        if known and catalogue["version"] < self.versions[known - 1][1]:
            faults.append(f"version {catalogue['version']} after {self.versions[known - 1][1]}")
        if whole:
            faults += [f"no {item_id}" for item_id in ITEMS if item_id not in gone and item_id not in found]
        fault = " ".join(faults)
        if fault:
            (self.admitted if catalogue["behind"] else self.wrong).append(
                f"{fault} by {answer['source']}, {answer['degraded']}"
            )
        return "" if catalogue["behind"] else fault


class Asker:
    """Questions at random times. An unknown item in each names it, and the answer repeats it."""

    def __init__(self, shelf: Shelf, *, rate: float) -> None:
        self._shelf = shelf
        self._rate = rate
        self._due: dict[str, tuple[float, bool]] = {}
        """When each was, and whether it has a filter."""

    def plan(self) -> Iterator[Shot]:
        """Shots without end."""
        draw = random.Random(7)  # noqa: S311 - a repeatable schedule
        began_s, at_s, number = time.perf_counter(), 0.0, 0
        while True:
            at_s += draw.expovariate(self._rate)
            name = f"question-{number}"
            question = QUESTIONS[number % len(QUESTIONS)]
            body = {"k": 20, **question, "items": [*question.get("items", ()), name]}
            self._due[name] = began_s + at_s - CLOCK_S, "filter" in question
            yield Shot(at_s, encode_post("/recommend", json.dumps(body).encode()), "ask")
            number += 1

    def find_fault(self, content: bytes) -> str:
        """What is wrong with an answer."""
        answer = json.loads(content)
        [name] = [item_id for item_id in answer["unknown_item_ids"] if item_id.startswith("question-")]
        due_s, filtered = self._due.pop(name)
        return self._shelf.check(answer, due_s, filtered=filtered)


@dataclass
class Report:
    """What came of it."""

    changes: int
    seconds: float
    outcomes: list[Outcome]
    shelf: Shelf
    took_ms: list[float]
    """Of the changes."""

    @property
    def failed(self) -> list[Outcome]:
        """Questions without an answer."""
        return [outcome for outcome in self.outcomes if outcome.status != 200]

    def describe(self) -> str:
        """In one line."""
        asked_ms = [outcome.latency_s * 1000 for outcome in self.outcomes]
        sources = Counter(f"{outcome.source} {outcome.degraded}".strip() for outcome in self.outcomes)
        return (
            f"{self.changes} changes in {self.seconds:.0f} s (p50 {percentile(self.took_ms, 0.5):.1f} ms, "
            f"{self.shelf.refused} sent again after a 503), "
            f"{self.shelf.answers} answers ({dict(sources)}), {self.shelf.behind} of them behind, "
            f"{len(self.failed)} failed; p50 {percentile(asked_ms, 0.5):.1f} ms, p99 {percentile(asked_ms, 0.99):.1f}; "
            f"{len(self.shelf.wrong)} that did not know a change {self.shelf.wrong[:3]}, and of those behind "
            f"{len(self.shelf.admitted)} {self.shelf.admitted[:3]}"
        )


async def sell_out(url: str, *, changes: int, rate: float) -> Report:
    """Change the items of a service, so many times, under so many questions a second."""
    shelf = Shelf()
    asker, stop = Asker(shelf, rate=rate), asyncio.Event()
    parts = urlsplit(url)
    load = asyncio.create_task(
        fire(str(parts.hostname), parts.port or 0, asker.plan(), stop=stop, find_fault=asker.find_fault)
    )
    draw = random.Random(3)  # noqa: S311 - the same changes each time
    took_ms: list[float] = []
    began_s = time.perf_counter()
    limits = httpx.Limits(max_keepalive_connections=0)  # each question may meet another worker
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30) as http:
        try:
            for number in range(changes):
                if load.done():
                    break
                await _change(http, shelf, draw.choice(ITEMS), draw.choice(KINDS), took_ms)
                await _ask(http, shelf, QUESTIONS[number % (len(QUESTIONS) - 1)])
        finally:
            stop.set()
            outcomes = await load
    return Report(len(took_ms), time.perf_counter() - began_s, outcomes, shelf, took_ms)


async def _change(http: httpx.AsyncClient, shelf: Shelf, item_id: str, kind: Kind, took_ms: list[float]) -> None:
    """Take an item from the answers, or from those with a filter, or put it back."""
    gone_s = shelf.gone_s[kind]
    back = gone_s.pop(item_id, None) is not None
    change = {"available": back} if kind == "sold out" else {"metadata": {"shelf": "open" if back else "closed"}}
    began_s = time.perf_counter()
    for _ in range(MOST_TRIES):
        response = await http.patch(f"/items/{item_id}", json=change)
        if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            break
        await asyncio.sleep(PAUSE_S)
        shelf.refused += 1
    response.raise_for_status()
    now_s = time.perf_counter()
    took_ms.append(1000 * (now_s - began_s))
    shelf.versions.append((now_s, response.json()["catalogue_version"]))
    if not back:
        gone_s[item_id] = now_s


async def _ask(http: httpx.AsyncClient, shelf: Shelf, question: dict[str, Any]) -> None:
    asked_s = time.perf_counter()
    response = await http.post("/recommend", json={"k": 20, "timeout_ms": 2000, **question})
    response.raise_for_status()
    shelf.check(response.json(), asked_s, filtered="filter" in question, whole=True)


def open_shelves(bundle: Path, folder: Path) -> Path:
    """A copy of a bundle in which every item is open, and can be filtered by that."""
    shutil.copytree(locate_bundle(bundle), folder)
    vocabulary = read_bundle(folder).vocabulary
    known = {item_id: {"shelf": "open", "title": item_id} for item_id in vocabulary.item_ids}
    (folder / METADATA).write_bytes(encode_metadata(vocabulary, known))
    (folder / ATTRIBUTES).write_bytes(gather_attributes(vocabulary, known).to_bytes())
    seal(folder, files=dict.fromkeys([*json.loads((folder / MANIFEST).read_bytes())["files"], METADATA, ATTRIBUTES]))
    return folder


async def main(given: argparse.Namespace, folder: Path) -> int:
    """One run over a service of its own; the exit status."""
    with EmbeddedStore(folder / "data") as store:
        options = ("--workers", str(given.workers), "--drain-delay-s", "0")
        service = ServiceProcess(store.url, open_shelves(BUNDLE, folder / "bundle"), folder / "service.log", *options)
        await service.start()
        try:
            report = await sell_out(service.url, changes=given.changes, rate=given.rate)
        finally:
            await service.stop()
    say(f"{given.workers} at work, {given.rate:.0f} questions a second: {report.describe()}")
    well = report.changes == given.changes and not report.shelf.wrong and not report.failed
    say("Every answer knew every change, or said that it is behind." if well else "FAILED.")
    return 0 if well else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.sold_out", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--workers", type=int, default=4, help="(default: 4)")
    parser.add_argument("--changes", type=int, default=10_000, help="(default: 10000)")
    parser.add_argument("--rate", type=float, default=300.0, help="questions a second (default: 300)")
    with tempfile.TemporaryDirectory(prefix="sold-out-") as temporary:
        try:
            sys.exit(asyncio.run(main(parser.parse_args(), Path(temporary))))
        except KeyboardInterrupt:
            sys.exit(130)
