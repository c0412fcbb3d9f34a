"""Are the reasons of an answer true, in time, and any good? Asked of a running service, on histories of real users.

`python -m benchmarks.accuracy.explanations LOG --work FOLDER`, or `make explained DATA=FOLDER`: trains a model for some
minutes where the folder holds none, publishes it and serves it. Ends with status 1 unless

- every weight is the difference of two plain answers' scores, to 1e-4;
- within 20 ms, which leave no time for many reasons, every question gets its answer, none a 5xx and none late by the
  service's own clock (`took_ms`): on a machine that other work keeps busy, some are;
- an item falls further without the first of its reasons than without another item of the history, drawn at random, in
  80 % of those cases in which the two differ. Where neither moves its rank, as often at the top of a list, ranks say
  nothing: so the same is counted with ties as misses, as halves, and broken by the item's share: its part of the
  softmax over the best 500 scores. All are printed, and ties by rank.
"""

import argparse
import asyncio
import itertools
import json
import math
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from benchmarks.accuracy.deletions import BEYOND, Deletion, Deletions, Place
from benchmarks.harness.console import say
from benchmarks.harness.open_loop import encode_post, fire, percentile, plan
from benchmarks.harness.processes import ServiceProcess
from model.contract.bundle import read_bundle
from service.api.fields import MAX_K
from service.embedded.server import EmbeddedStore
from training.logs.reader import read_log
from training.recipe import read_recipe

TOLERANCE: Final = 1e-4
HISTORY: Final = 45
"""Newest items of a user that are asked about: the windows of all recipes hold so many."""
WANTED: Final = 10
"""Items of an answer."""
SHORT_MS: Final = 20
RATE: Final = 40.0
"""Questions a second with a time limit of SHORT_MS."""
TRIES: Final = 20
GOAL: Final = 0.8
PATIENT: Final[dict[str, Any]] = {"timeout_ms": 2000}

History = list[str]


class Questions:
    """Plain and explained questions about histories."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, items: History, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - of a request
        """The answer of the model, with reasons where they are asked for: a busy machine may be asked again."""
        for _ in range(TRIES):
            response = await self._http.post("/recommend", json={"items": items, **PATIENT, **fields})
            response.raise_for_status()
            answer: dict[str, Any] = response.json()
            if (answer["source"], answer["degraded"]) == ("model", None) and answer.get("explained", 0) is not None:
                return answer
        raise RuntimeError(f"{TRIES} times no answer of the model: the machine is too busy")

    async def score(self, items: History, named: Sequence[str]) -> Mapping[str, float]:
        """The scores of items by a plain answer."""
        answer = await self.ask(items, candidate_item_ids=[*named], exclude_seen=False, k=len(named))
        return {item["item_id"]: item["score"] for item in answer["items"]}

    async def place(self, items: History, exclude: History) -> Mapping[str, Place]:
        """Where the best items stand."""
        answer = await self.ask(items, exclude_item_ids=exclude, k=MAX_K)
        best = answer["items"][0]["score"]
        whole = best + math.log(sum(math.exp(item["score"] - best) for item in answer["items"]))
        return {item["item_id"]: Place(item["rank"], item["score"] - whole) for item in answer["items"]}


async def check_weights(questions: Questions, histories: Sequence[History]) -> tuple[int, float]:
    """How many weights there were, and by how much the worst one was not the difference of two plain answers."""
    weights, worst = 0, 0.0
    for history in histories:
        answer = await questions.ask(history, k=WANTED, explain=True)
        named = [item["item_id"] for item in answer["items"]]
        full = await questions.score(history, named)
        without: dict[str, Mapping[str, float]] = {}
        for item in answer["items"]:
            for reason in item["reasons"]:
                left_out = reason["item_id"]
                if left_out not in without:
                    without[left_out] = await questions.score([one for one in history if one != left_out], named)
                difference = full[item["item_id"]] - without[left_out][item["item_id"]]
                worst = max(worst, abs(difference - reason["weight"]))
                weights += 1
    return weights, worst


async def check_times(url: str, histories: Sequence[History]) -> bool:
    """Whether each history had its answer within SHORT_MS by the service's clock. Prints what came."""
    took_ms: list[float] = []
    reasons: Counter[str] = Counter()

    def note(content: bytes) -> str:
        answer = json.loads(content)
        took_ms.append(answer["took_ms"])
        reasons["with reasons" if answer["explained"] else str(answer["degraded"] or "without reasons")] += 1
        return ""

    asked = {"k": WANTED, "timeout_ms": SHORT_MS, "explain": True}
    shots = [encode_post("/recommend", json.dumps({"items": history, **asked}).encode()) for history in histories]
    parts = urlsplit(url)
    outcomes = await fire(
        str(parts.hostname),
        parts.port or 0,
        plan(shots, rate=RATE, seconds=len(shots) / RATE),
        find_fault=note,
    )
    failed = [outcome.status for outcome in outcomes if outcome.status != httpx.codes.OK]
    late = [took for took in took_ms if took > SHORT_MS]
    say(
        f"{len(outcomes)} questions with {SHORT_MS} ms each, {RATE:g} a second: {dict(reasons)}; {len(failed)} without "
        f"200 {sorted({*failed})}, {len(late)} late{f', the latest {max(late):.1f} ms' if late else ''}; took p50 "
        f"{percentile(took_ms, 0.5):.1f} ms, p99 {percentile(took_ms, 0.99):.1f}"
    )
    return not failed and not late


async def delete_reasons(
    questions: Questions, histories: Sequence[History], draw: random.Random, *, k: int = WANTED
) -> Deletions:
    """Leave out the first reason of each of `k` answered items, and in turn another item of the history."""
    found = Deletions()
    for history in histories:
        answer = await questions.ask(history, k=k, explain=True)
        whole = await questions.place(history, exclude=history)
        places: dict[str, Mapping[str, Place]] = {}
        for item in answer["items"]:
            if not item["reasons"]:
                continue
            first = item["reasons"][0]["item_id"]
            other = draw.choice([one for one in dict.fromkeys(history) if one != first])
            for left_out in (first, other):
                if left_out not in places:
                    rest = [one for one in history if one != left_out]
                    places[left_out] = await questions.place(rest, exclude=history)
            name = item["item_id"]
            found.append(Deletion(whole[name], *(places[one].get(name, BEYOND) for one in (first, other))))
    return found


def read_histories(log: Path, recipe: str, known: Container[str]) -> list[History]:
    """The newest known items of each user but the last one, which is what came next; of users with ten at least."""
    read = read_log(log, read_recipe(recipe, []).data)
    ids = read.vocabulary.item_ids
    items = [ids[index - 1] for index in read.items.tolist()]
    users = itertools.pairwise(read.offsets.tolist())
    histories = ([item for item in items[start : end - 1] if item in known][-HISTORY:] for start, end in users)
    return [history for history in histories if len(history) >= 10]


def train(options: argparse.Namespace) -> Path:
    """The folder of a published bundle, trained if there is none yet."""
    bundles: Path = options.work / "bundles"
    if not (bundles / "current").is_file():
        run = options.work / "run"
        given = [f"train.budget_seconds={options.seconds}", "train.keep=last", *options.settings]
        settings = itertools.chain.from_iterable(("--set", setting) for setting in given)
        fit = ["fit", options.recipe, "--data", options.log, "--out", run, *settings]
        for words in (fit, ["publish", run, "--out", bundles]):
            subprocess.run([sys.executable, "-m", "training.cli", *words], check=True)  # noqa: S603 - our own command
    return bundles


async def judge(url: str, histories: Sequence[History], options: argparse.Namespace) -> int:
    """Ask a service; the exit status."""
    draw = random.Random(11)  # noqa: S311 - the same users each time
    asked = [draw.choice(histories) for _ in range(options.answers)]
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        questions = Questions(http)
        weights, worst = await check_weights(questions, asked)
        say(f"{weights:,} weights of {len(asked):,} answers: the worst is off by {worst:.1e} of {TOLERANCE:g}")
        in_time = await check_times(url, asked)
        deletions = await delete_reasons(questions, draw.sample(list(histories), options.users), draw, k=options.k)
        say(deletions.describe())
    well = weights > 0 and worst <= TOLERANCE and in_time and deletions.share >= GOAL
    say("Reasons are true, in time and good." if well else "FAILED.")
    return 0 if well else 1


async def main(options: argparse.Namespace, folder: Path) -> int:
    """Train, serve and ask; the exit status."""
    bundles = train(options)
    histories = read_histories(options.log, options.recipe, read_bundle(bundles).vocabulary)
    with EmbeddedStore(folder / "data") as store:
        service = ServiceProcess(store.url, bundles, folder / "service.log", "--drain-delay-s", "0")
        await service.start()
        try:
            return await judge(service.url, histories, options)
        finally:
            await service.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.explanations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("log", type=Path, help="such as ml-1m.txt.gz")
    parser.add_argument("--work", type=Path, required=True, help="folder for the run and the bundle")
    parser.add_argument("--recipe", default="sasrec-ml-1m", help="(default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="SECTION.KEY=VALUE")
    parser.add_argument("--seconds", type=int, default=300, help="of training, where there is no bundle (default: 300)")
    parser.add_argument("--answers", type=int, default=1000, help="whose weights and times are checked (default: 1000)")
    parser.add_argument("--users", type=int, default=300, help="whose reasons are deleted (default: 300)")
    parser.add_argument("--k", type=int, default=WANTED, help="answered items of each of these users (default: 10)")
    with tempfile.TemporaryDirectory(prefix="explained-") as temporary:
        sys.exit(asyncio.run(main(parser.parse_args(), Path(temporary))))
