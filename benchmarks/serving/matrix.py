"""One case: start and check all systems, then measure each kind of load on each system, round by round."""

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.closed_loop import Sample, judge_http
from benchmarks.serving.alone import BATCH, LARGE_BATCH, Alone
from benchmarks.serving.batches import Batches
from benchmarks.serving.proof import prove
from benchmarks.serving.roster import OURS, PEERS, TEXTBOOK, System
from benchmarks.serving.rounds import Plan, RunningSystem, Turn, rotate, take_turn
from benchmarks.serving.servers import Server, Setting, find_port, serve
from benchmarks.serving.systems.orders import Batching
from benchmarks.serving.systems.plain import PlainModel
from benchmarks.serving.tuning import Tried, choose, try_settings
from service.embedded.server import EmbeddedStore

PROVEN = 20
"""Users of each kind for whom every system must answer correctly."""
SHARES = (0.25, 0.5, 0.7, 0.9)
"""Rates that an open loop offers each system, as shares of its own capacity."""
OFFERED_TO = (OURS, TEXTBOOK, *PEERS)


class Matrix:
    """The matrix of running systems and kinds of load of one case."""

    def __init__(
        self,
        roster: Sequence[System],
        servers: Mapping[str, Server],
        store: EmbeddedStore,
        folder: Path,
        plan: Plan,
        *,
        tuning: Mapping[str, Sequence[Tried]],
    ) -> None:
        self.servers = servers
        self._tuning = tuning
        self._roster = roster
        self._sleepers = {each.name for each in roster if each.polls}
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

    def run_closed(self, histories: Mapping[str, list[str]]) -> Iterator[Turn]:
        """Closed loops, in rounds: `closed` on many connections, `alone` on one, `batch` by many in a request."""
        loads = {each.name: self._find_loads(each, histories) for each in self._roster}
        seconds = {"closed": self._plan.seconds, "alone": self._plan.seconds / 2, "batch": self._plan.seconds}
        for number in range(self._plan.rounds):
            for name in rotate(list(loads), number):
                for kind, load in loads[name].items():
                    yield {"load": kind, "round": number, **self._take_turn(load, name, seconds[kind])}

    def run_open(self, histories: Mapping[str, list[str]], turns: Sequence[Turn]) -> Iterator[Turn]:
        """Open loops, in rounds, at shares of what each system's better number of workers did in closed ones."""
        capacities = find_capacities(turns)
        best = [name for kind in OFFERED_TO if (name := find_best(self._roster, capacities, kind))]
        running = {each.name: self._find_running(each, histories) for each in self._roster if each.name in best}
        pairs = [f"{share:g} {name}" for share in SHARES for name in best]
        for number in range(self._plan.rounds):
            for pair in rotate(pairs, number):
                share, name = pair.split(" ", 1)
                rate = float(share) * capacities[name]
                load = partial(running[name].run_open, rate=rate)
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

    def _find_loads(self, system: System, histories: Mapping[str, list[str]]) -> dict[str, Callable[[float], Sample]]:
        if system.command is None:
            alone = Alone(self._folder, list(histories.values()))
            return {"closed": alone.run(BATCH), "alone": alone.run(1), "batch": alone.run(LARGE_BATCH)}
        running = self._find_running(system, histories)
        loads: dict[str, Callable[[float], Sample]] = {
            "closed": partial(running.run_closed, connections=self._plan.connections)
        }
        if system.workers == 1:
            loads["alone"] = partial(running.run_closed, connections=1)
            if system.kind == OURS and (batches := Batches.find(running.server, list(histories))):
                loads["batch"] = batches.run_closed
        return loads

    def _find_running(self, system: System, histories: Mapping[str, list[str]]) -> RunningSystem:
        payloads = [system.encode(user_id, items) for user_id, items in histories.items()]
        return RunningSystem(system, self.servers[system.name], payloads)


@contextlib.contextmanager
def start_systems(
    roster: Sequence[System],
    store: EmbeddedStore,
    folder: Path,
    histories: Mapping[str, Mapping[str, list[str]]],
    plan: Plan,
    *,
    logs: Path,
    announce: Callable[[str], None],
) -> Iterator[Matrix]:
    """Tune, start and check all systems. They stop at the end of the block.

    Raises ServerFailed and AnswersDiffer.
    """
    users = {user_id: items for kind in histories.values() for user_id, items in list(kind.items())[:PROVEN]}
    probe = next(iter(users.items()))

    def start(system: System, batching: Batching | None) -> contextlib.AbstractContextManager[Server]:
        assert system.command is not None  # noqa: S101 - it is a server
        return serve(
            system.command,
            Setting(folder, store.url, find_port(), plan.environments, batching),
            log=logs / f"{system.name}.log",
            probe=system.encode(*probe),
            judge=judge_http(system.mark),
        )

    tuning: dict[str, list[Tried]] = {}
    for system in roster:
        if system.kind in PEERS and system.kind not in tuning:
            tuning[system.kind] = []
            payloads = [system.encode(*pair) for pair in histories["full"].items()]
            for tried in try_settings(system, partial(start, system), payloads, plan):
                tuning[system.kind].append(tried)
                announce(f"{system.kind}, batches of {tried.rows}, {1e3 * tried.wait_s:g} ms: {tried.rate:.0f}/s")
    with contextlib.ExitStack() as stack:
        model = PlainModel(folder)
        servers = {}
        for system in roster:
            if system.command is None:
                continue
            announce(f"starts {system.name}")
            batching = choose(tuning[system.kind]) if system.kind in tuning else None
            server = stack.enter_context(start(system, batching))
            prove(system, server, model, users)
            servers[system.name] = server
        del model
        yield Matrix(roster, servers, store, folder, plan, tuning=tuning)


def find_capacities(turns: Sequence[Turn]) -> dict[str, float]:
    """The median rate of each system in closed loops, of those who answered at all."""
    rates: dict[str, list[float]] = {}
    for turn in turns:
        if turn["load"] == "closed":
            rates.setdefault(turn["contestant"], []).append(turn["rate"])
    return {name: median for name, found in rates.items() if (median := statistics.median(found))}


def find_best(roster: Sequence[System], capacities: Mapping[str, float], kind: str) -> str | None:
    """Of one kind, the number of workers that answers most."""
    names = [each.name for each in roster if each.kind == kind and each.name in capacities]
    return max(names, key=capacities.__getitem__, default=None)
