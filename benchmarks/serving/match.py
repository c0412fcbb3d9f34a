"""One case: everybody is started and proven, then they take turns, round by round."""

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.serving.alone import BATCH, LARGE_BATCH, Alone
from benchmarks.serving.batches import Batches
from benchmarks.serving.contestants.orders import Batching
from benchmarks.serving.contestants.plain import PlainModel
from benchmarks.serving.field import OURS, PEERS, TEXTBOOK, Contestant
from benchmarks.serving.generator import Sample, judge_http
from benchmarks.serving.proof import prove
from benchmarks.serving.servers import Server, Setting, find_port, serve
from benchmarks.serving.tuning import Tried, choose, try_settings
from benchmarks.serving.turns import Opponent, Plan, Turn, rotate, take_turn
from service.embedded import EmbeddedStore

PROVEN = 20
"""Users of each kind about whom every contestant must answer right."""
SHARES = (0.25, 0.5, 0.7, 0.9)
"""Of its own capacity: what an open loop offers each contestant."""
OFFERED_TO = (OURS, TEXTBOOK, *PEERS)


class Match:
    """All contestants of a case, answering."""

    def __init__(
        self,
        field: Sequence[Contestant],
        servers: Mapping[str, Server],
        store: EmbeddedStore,
        folder: Path,
        plan: Plan,
        *,
        tuning: Mapping[str, Sequence[Tried]],
    ) -> None:
        self.servers = servers
        self._tuning = tuning
        self._field = field
        self._sleepers = {each.name for each in field if each.polls}
        for name in self._sleepers:
            servers[name].freeze()
        self._folder = folder
        self._plan = plan
        self._processes = {name: server.process_id for name, server in servers.items()} | {"store": store.pid}

    def describe(self) -> dict[str, Any]:
        """How long each took until it answered, and what came of every setting that the frameworks were given."""
        return {
            "start_s": {name: server.start_s for name, server in self.servers.items()},
            "tuning": {kind: [each._asdict() for each in tried] for kind, tried in self._tuning.items()},
        }

    def press(self, histories: Mapping[str, list[str]]) -> Iterator[Turn]:
        """Closed loops, in rounds: `closed` on many connections, `alone` on one, `batch` by many in a request."""
        loads = {each.name: self._find_loads(each, histories) for each in self._field}
        seconds = {"closed": self._plan.seconds, "alone": self._plan.seconds / 2, "batch": self._plan.seconds}
        for number in range(self._plan.rounds):
            for name in rotate(list(loads), number):
                for kind, load in loads[name].items():
                    yield {"load": kind, "round": number, **self._take_turn(load, name, seconds[kind])}

    def offer(self, histories: Mapping[str, list[str]], turns: Sequence[Turn]) -> Iterator[Turn]:
        """Open loops, in rounds, at shares of what each contestant's better number of workers did in closed ones."""
        capacities = find_capacities(turns)
        best = [name for kind in OFFERED_TO if (name := find_best(self._field, capacities, kind))]
        opponents = {each.name: self._oppose(each, histories) for each in self._field if each.name in best}
        pairs = [f"{share:g} {name}" for share in SHARES for name in best]
        for number in range(self._plan.rounds):
            for pair in rotate(pairs, number):
                share, name = pair.split(" ", 1)
                rate = float(share) * capacities[name]
                load = partial(opponents[name].offer, rate=rate)
                turn = self._take_turn(load, name, self._plan.seconds)
                yield {"load": "open", "share": float(share), "offered": rate, "round": number, **turn}

    def _take_turn(self, load: Callable[[float], Sample], name: str, seconds: float) -> Turn:
        """One that polls while it is idle is awake in its own turns only."""
        sleeper = self.servers[name] if name in self._sleepers else None
        if sleeper:
            sleeper.thaw()
        turn = take_turn(load, name, self._processes, seconds)
        if sleeper:
            sleeper.freeze()
        return turn

    def _find_loads(
        self, contestant: Contestant, histories: Mapping[str, list[str]]
    ) -> dict[str, Callable[[float], Sample]]:
        if contestant.command is None:
            alone = Alone(self._folder, list(histories.values()))
            return {"closed": alone.run(BATCH), "alone": alone.run(1), "batch": alone.run(LARGE_BATCH)}
        opponent = self._oppose(contestant, histories)
        loads: dict[str, Callable[[float], Sample]] = {
            "closed": partial(opponent.press, connections=self._plan.connections)
        }
        if contestant.workers == 1:
            loads["alone"] = partial(opponent.press, connections=1)
            if contestant.kind == OURS and (batches := Batches.find(opponent.server, list(histories))):
                loads["batch"] = batches.press
        return loads

    def _oppose(self, contestant: Contestant, histories: Mapping[str, list[str]]) -> Opponent:
        payloads = [contestant.encode(user_id, items) for user_id, items in histories.items()]
        return Opponent(contestant, self.servers[contestant.name], payloads)


@contextlib.contextmanager
def meet(
    field: Sequence[Contestant],
    store: EmbeddedStore,
    folder: Path,
    histories: Mapping[str, Mapping[str, list[str]]],
    plan: Plan,
    *,
    logs: Path,
    announce: Callable[[str], None],
) -> Iterator[Match]:
    """Tune and start everybody and let them answer; all are ended with the block.

    Raises ServerFailed and AnswersDiffer.
    """
    users = {user_id: items for kind in histories.values() for user_id, items in list(kind.items())[:PROVEN]}
    probe = next(iter(users.items()))

    def start(contestant: Contestant, batching: Batching | None) -> contextlib.AbstractContextManager[Server]:
        assert contestant.command is not None  # noqa: S101 - it is a server
        return serve(
            contestant.command,
            Setting(folder, store.url, find_port(), plan.environments, batching),
            log=logs / f"{contestant.name}.log",
            probe=contestant.encode(*probe),
            judge=judge_http(contestant.mark),
        )

    tuning: dict[str, list[Tried]] = {}
    for contestant in field:
        if contestant.kind in PEERS and contestant.kind not in tuning:
            tuning[contestant.kind] = []
            payloads = [contestant.encode(*pair) for pair in histories["full"].items()]
            for tried in try_settings(contestant, partial(start, contestant), payloads, plan):
                tuning[contestant.kind].append(tried)
                announce(f"{contestant.kind}, batches of {tried.rows}, {1e3 * tried.wait_s:g} ms: {tried.rate:.0f}/s")
    with contextlib.ExitStack() as stack:
        model = PlainModel(folder)
        servers = {}
        for contestant in field:
            if contestant.command is None:
                continue
            announce(f"starts {contestant.name}")
            batching = choose(tuning[contestant.kind]) if contestant.kind in tuning else None
            server = stack.enter_context(start(contestant, batching))
            prove(contestant, server, model, users)
            servers[contestant.name] = server
        del model
        yield Match(field, servers, store, folder, plan, tuning=tuning)


def find_capacities(turns: Sequence[Turn]) -> dict[str, float]:
    """The median rate of each contestant in closed loops, of those who answered at all."""
    rates: dict[str, list[float]] = {}
    for turn in turns:
        if turn["load"] == "closed":
            rates.setdefault(turn["contestant"], []).append(turn["rate"])
    return {name: median for name, found in rates.items() if (median := statistics.median(found))}


def find_best(field: Sequence[Contestant], capacities: Mapping[str, float], kind: str) -> str | None:
    """Of one kind, the number of workers that answers most."""
    names = [each.name for each in field if each.kind == kind and each.name in capacities]
    return max(names, key=capacities.__getitem__, default=None)
