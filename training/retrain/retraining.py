"""A retraining under way: train without the newest events, hold against the champion, refit, put on trial."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.deployment.changes import set_candidate
from model.contract.deployment.document import Deployment, DeploymentError, DeploymentRefused
from model.contract.deployment.writer import change_deployment
from model.contract.manifest import BundleError
from model.contract.rules import Rules
from model.contract.sessions import Sessions
from model.contract.vocabulary import Vocabulary
from model.nets.network import SequenceNetwork
from training.baselines.catalogue import make_baseline
from training.baselines.neighbours import gather_sessions
from training.baselines.rules import gather_rules
from training.data.histories import Histories
from training.data.interactions import Log
from training.errors import TrainingError
from training.evaluation.metrics import PRIMARY_METRIC
from training.fit.fit import COMPARED
from training.logs.items import read_items
from training.publish.publish import write_run
from training.recipe import Recipe
from training.recipe_models import BASELINES
from training.retrain.champion import Champion
from training.retrain.held_out import HeldOut
from training.retrain.history_gain import measure_history_gain
from training.retrain.offline_trial import (
    CANDIDATE,
    CHAMPION,
    Gains,
    Graph,
    answer_by_counting,
    answer_questions,
    judge,
)
from training.retrain.order import NOT_GOOD_ENOUGH, Order, Outcome, Stopped, say_busy
from training.retrain.report import REPORT, measure_days, write_report
from training.retrain.training import Job, Start, refit, shorten, train_measured
from training.retrain.warm_start import Carried
from training.runs.networks import load_network
from training.runs.recency import count_for
from training.runs.run import Run

BY = "retrain"


@dataclass(frozen=True)
class Retraining:
    """A retraining that is under way, in a folder of its own."""

    order: Order
    champion: Champion
    recipe: Recipe
    log: Log
    new: int
    held: HeldOut
    start: Start
    folder: Path
    stop: Callable[[], bool]
    announce: Callable[[str], None]

    def run(self) -> Outcome:
        """Train, and put the candidate on trial if it is good enough. Raises TrainingError, and Stopped."""
        begun_s = time.process_time()
        metadata = self.champion.read_metadata()
        if self.order.items:
            metadata = {**(metadata or {}), **read_items(self.order.items, self.recipe.data.ids)}
        job = Job(self.log, self.order.data, metadata, self.stop)
        self.announce(f"1/4 trains without the events since {self.held.held_out_from}")
        measured = train_measured(
            self.folder / "measured", shorten(self.recipe, self.held, self.start, self.order.budget), job, self.held,
            self.start,
        )  # fmt: skip
        if measured is None:
            raise Stopped
        run = measured.run
        self.announce(f"2/4 asks candidate, champion and {', '.join(COMPARED)} {len(self.held.asked):,} questions")
        gains, history_gain = self._answer(run)
        offline = judge(gains, self.held.owners, history_gain)
        warnings = _find_warnings(offline)
        report = partial(self._report, items=measured.items, gains=gains, offline=offline, warnings=warnings)
        if not offline["passed"]:
            said = f"not good enough: {offline['why']}; nothing was published"
            report(said, begun_s)
            return Outcome(NOT_GOOD_ENOUGH, f"{said}; see {self.folder / REPORT}")
        self.announce("3/4 trains on all events")
        whole = refit(self.folder / "whole", run, self.recipe, job, self.champion.version)
        if whole is None:
            raise Stopped
        self.announce("4/4 exports, checks the graph against PyTorch and puts the bundle on trial")
        version = self._publish(whole, metadata, offline, warnings)
        said = f"{version} is on trial in shadow: {offline['why']}"
        report(said, begun_s)
        return Outcome(0, f"{said}; see {self.folder / REPORT}", version)

    def _answer(self, run: Run) -> tuple[dict[str, Gains], NDArray[np.float64]]:
        """The gains of every model on the held-out questions, the champion's and the candidate's from their graphs.

        And what the true histories add to the candidate's.
        """
        counted, V = self.held.split.counted, len(self.log.vocabulary)
        network = load_network(run, recent=count_for(run.recipe, self.log, counted))
        assert isinstance(network, SequenceNetwork)  # noqa: S101 - choose_start refuses others
        types = () if run.event_features is None else run.event_features.event_types
        own = Graph.of_network(network, run.vocabulary, types)
        asked = self.held.asked
        gains = {
            CANDIDATE: answer_questions(own, self.log, asked),
            CHAMPION: answer_questions(Graph.of_bundle(self.champion.bundle), self.log, asked),
        }
        for name in COMPARED:
            scorer = make_baseline(BASELINES[name](name=name), counted, V, self.log.timestamps_ms)
            gains[name] = answer_by_counting(scorer, asked)
        return gains, measure_history_gain(own, self.log, asked, self.held.owners)

    def _publish(
        self, run: Run, metadata: Mapping[str, Mapping[str, object]] | None, offline: Mapping[str, Any],
        warnings: list[str],
    ) -> str:  # fmt: skip
        """Write the bundle and make it the candidate. Returns its version."""
        evidence = _summarise(offline)
        lineage = {
            "parent": self.champion.version,
            "run": f"{self.folder.name}/{run.path.name}",
            "start": self.start.name,
            "held_out_from": self.held.held_out_from,
            "metrics": "before refit",
            "offline": evidence,
        }
        gather = partial(_gather_sessions, self.log) if self.champion.bundle.sessions is not None else None
        rules = partial(_gather_rules, self.log) if self.champion.bundle.rules is not None else None
        similar = self.champion.bundle.similar is not None
        folder = write_run(
            run, self.order.bundle, metadata, gather=gather, gather_rules=rules, similar=similar, lineage=lineage
        )
        why = "; ".join([offline["why"], *warnings])
        change = partial(_put_on_trial, folder.name, replaces=self.order.replace)
        try:
            change_deployment(
                self.order.bundle, change, action="candidate", by=BY, why=why, evidence={"offline": evidence}
            )
        except (DeploymentError, BundleError) as error:
            raise TrainingError(f"{folder} is written and not on trial: {error}") from error
        return folder.name

    def _report(
        self, verdict: str, begun_s: float, *, items: Carried, gains: Mapping[str, Gains],
        offline: Mapping[str, Any], warnings: list[str],
    ) -> None:  # fmt: skip
        assert self.log.timestamps_ms is not None  # noqa: S101 - without times nothing is new
        document = {
            "verdict": verdict,
            "parent": self.champion.version,
            "start": {"name": self.start.name, "why": self.start.why},
            "items": asdict(items),
            "events": len(self.log.items),
            "new_events": self.new,
            "held_out_from": self.held.held_out_from,
            "cpu_seconds": round(time.process_time() - begun_s, 1),
            "offline": offline,
            "warnings": warnings,
        }
        days = measure_days(gains, self.log.timestamps_ms[self.held.positions], self.held.owners)
        write_report(self.folder, document, days)
        for warning in warnings:
            self.announce(f"WARNING: {warning}")


def _put_on_trial(version: str, now: Deployment, *, replaces: bool) -> Deployment:
    """The change. Somebody may have put another candidate on trial while this one was trained."""
    if now.candidate not in (None, version) and not replaces:
        raise DeploymentRefused(say_busy(now))
    return set_candidate(version)(now)


def _find_warnings(offline: Mapping[str, Any]) -> list[str]:
    over = offline["over_rules"]
    if over is None or over["value"] >= 0:
        return []
    return [
        f"the network is below sequential rules: its {PRIMARY_METRIC} by {-over['value']:.4f} on the same questions"
    ]


def _summarise(offline: Mapping[str, Any]) -> dict[str, Any]:
    """What manifest and journal hold of an offline trial."""
    means = {name: round(metrics[PRIMARY_METRIC]["value"], 4) for name, metrics in offline["models"].items()}
    lead, gain = (
        [round(offline[name][end], 4) for end in ("value", "low", "high")] for name in ("lead", "history_gain")
    )
    return {
        "questions": offline["questions"],
        "users": offline["users"],
        "ndcg@10": means,
        "lead": lead,
        "history_gain": gain,
    }


def _gather_sessions(log: Log, vocabulary: Vocabulary) -> Sessions:
    return gather_sessions(_encode(log, vocabulary), len(vocabulary), log.timestamps_ms)


def _gather_rules(log: Log, vocabulary: Vocabulary) -> Rules:
    return gather_rules(_encode(log, vocabulary), len(vocabulary))


def _encode(log: Log, vocabulary: Vocabulary) -> Histories:
    """The histories of a log by a vocabulary that has all its items, and maybe more."""
    index_of = np.append(0, vocabulary.encode(log.vocabulary.item_ids)).astype(np.int32)
    return Histories(index_of[log.items], log.offsets[:-1], log.offsets[1:])
