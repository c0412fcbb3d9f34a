"""Whether a candidate of half a second a run is felt by the champion's users: their p99 with it and without, in turns.

`python -m benchmarks.reliability.slow_candidate`: a service with a candidate in canary that answers a fifth of the
users, both at a steady rate. In every other turn each run of the candidate takes half a second, until the breaker takes
it out of use; the pause between turns lets it back in. Ends with status 1 where the p99 over all turns is more than
5 % and 1 ms worse, or an answer is no model's.
"""

import argparse
import asyncio
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from shutil import copytree
from typing import Final
from urllib.parse import urlsplit

from benchmarks.harness.bundles import rename_items
from benchmarks.harness.console import say
from benchmarks.harness.open_loop import Outcome, Shot, encode_post, fire, percentile, plan
from benchmarks.harness.processes import ServiceProcess
from model.contract.deployment.changes import set_candidate
from model.contract.deployment.document import read_deployment
from model.contract.deployment.writer import change_deployment
from service.embedded.server import EmbeddedStore
from service.recommend.assignment import assign
from service.recommend.variant_breaker import PAUSE_S

BUNDLE: Final = Path("tests/serving/bundle")
VERSION: Final = "20261122T101500-trial"
SHARE: Final = 0.2
ASKS: Final = 80.0
"""A second by the champion's users; the candidate's ask as often as their share wants."""
LIMIT, LIMIT_S = 0.05, 0.001


def write_root(folder: Path) -> Path:
    """A bundle folder with a candidate in canary."""
    root = Path(copytree(BUNDLE, folder / "bundles"))
    rename_items(BUNDLE, root, VERSION, prefix="")
    change_deployment(root, set_candidate(VERSION, mode="canary", share=SHARE), action="benchmark", by="benchmark")
    return root


def plan_asks(root: Path, seconds: float, *, turn: int) -> list[Shot]:
    """Questions of both variants' users, labelled by who is to answer them."""
    now = read_deployment(root)
    users = [f"user-{number}" for number in range(1000)]
    shots: list[Shot] = []
    for variant, rate in (("champion", ASKS), ("candidate", ASKS * SHARE / (1 - SHARE))):
        own = cycle(user for user in users if assign(user, salt=now.salt, share=now.share) == variant)
        for shot in plan([b""], rate=rate, seconds=seconds, label=variant, seed=turn):
            body = f'{{"user_id":"{next(own)}","items":["i01","i02"],"timeout_ms":2000}}'
            shots.append(Shot(shot.at_s, encode_post("/recommend", body.encode()), variant))
    return sorted(shots, key=lambda shot: shot.at_s)


async def main(given: argparse.Namespace, folder: Path) -> int:
    """All turns; the exit status."""
    root, fault = write_root(folder), folder / "fault"
    fault.touch()
    found: dict[bool, list[Outcome]] = {False: [], True: []}
    with EmbeddedStore(folder / "data") as store:
        service = ServiceProcess(
            store.url, root, folder / "service.log", "--fault-file", str(fault), "--drain-delay-s", "0",
            module="benchmarks.harness.faulty_engine",
        )  # fmt: skip
        await service.start()
        try:
            port = urlsplit(service.url).port or 0
            await asyncio.sleep(10)  # the candidate is tried and loaded
            await fire("127.0.0.1", port, plan_asks(root, given.seconds, turn=0))
            for turn in range(1, 2 * given.rounds + 1):
                slow = turn % 2 == 0
                fault.write_text("others slow 0.5" if slow else "")
                found[slow] += await fire("127.0.0.1", port, plan_asks(root, given.seconds, turn=turn))
                if slow:
                    fault.write_text("")
                    await asyncio.sleep(PAUSE_S + 5)
        finally:
            await service.stop()
    times = {
        slow: [each.latency_s for each in outcomes if each.label == "champion"] for slow, outcomes in found.items()
    }
    plain_s, slow_s = (percentile(times[slow], 0.99) for slow in (False, True))
    bad = [each for outcomes in found.values() for each in outcomes if each.source != "model"]
    waited = sum(each.latency_s > 0.25 for each in found[True] if each.label == "candidate")
    say(
        f"p99 of the champion's users: {1e3 * plain_s:.2f} ms, {1e3 * slow_s:.2f} ms beside a slow candidate "
        f"({len(times[True])} answers each; {waited} of the candidate's waited for it); {len(bad)} by no model"
    )
    kept = slow_s <= plain_s * (1 + LIMIT) + LIMIT_S and waited and not bad
    say(f"Promised: at most {100 * LIMIT:.0f} % and {1e3 * LIMIT_S:.0f} ms worse: {'kept' if kept else 'NOT KEPT'}")
    return 0 if kept else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability.slow_candidate", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=8, help="how long each turn lasts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slow-candidate-") as temporary:
        try:
            sys.exit(asyncio.run(main(arguments, Path(temporary))))
        except KeyboardInterrupt:
            sys.exit(130)
