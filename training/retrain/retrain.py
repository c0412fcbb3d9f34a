"""One retraining: is there anything to learn, train without the newest events, hold against the champion, refit, trial.

```
RUNS/retrain.lock              held by the one retraining that is under way
     last-round.json           with --every: how the last round ended
     retrain-TIME/measured     the run without the newest events, which the offline trial judges
                 /whole        its refit on all events, which is published
                 /report.md, report.png, retrain.json
```
The champion is never touched: the bundle becomes a candidate in shadow, and the live trial decides.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.deployment.changes import set_candidate
from model.contract.deployment.document import Deployment, DeploymentError, DeploymentRefused
from model.contract.deployment.writer import change_deployment
from model.contract.manifest import BundleError
from model.contract.sessions import Sessions
from model.contract.vocabulary import Vocabulary
from model.nets.network import SequenceNetwork
from training.baselines.catalogue import make_baseline
from training.baselines.neighbours import gather_sessions
from training.data.archive import is_new_archive
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.items import read_items
from training.data.reader import read_log
from training.errors import TrainingError
from training.evaluation.metrics import PRIMARY_METRIC
from training.fit.fit import COMPARED
from training.publish.publish import write_run
from training.recipe import Recipe
from training.recipe_models import BASELINES
from training.retrain.champion import Champion, choose_recipe, find_champion
from training.retrain.held_out import LEAST_QUESTIONS, HeldOut, count_new, hold_out
from training.retrain.history_gain import measure_history_gain
from training.retrain.need import find_need
from training.retrain.offline_trial import (
    CANDIDATE,
    CHAMPION,
    Gains,
    Graph,
    answer_by_counting,
    answer_questions,
    judge,
)
from training.retrain.report import REPORT, measure_days, write_report
from training.retrain.training import Job, Start, choose_start, refit, shorten, train_measured
from training.retrain.warm_start import Carried
from training.runs.networks import load_network
from training.runs.run import Run

LEAST_NEW, LEAST_NEW_SHARE = 500, 0.01
"""A retraining has something to learn from max(500, 1 %) new events on."""
NOT_GOOD_ENOUGH = 3
BY = "retrain"


@dataclass(frozen=True, kw_only=True)
class Order:
    """What was asked for."""

    data: Path
    bundle: Path
    runs: Path
    base: Path | None = None
    items: Path | None = None
    recipe: str | None = None
    settings: tuple[str, ...] = ()
    start: str = "warm"
    budget: float | None = None
    if_needed: bool = False
    dry_run: bool = False
    replace: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of it: the exit status, a sentence, and the version on trial, if there is one."""

    code: int
    said: str
    version: str | None = None


class Stopped(Exception):
    """Somebody asked to stop."""


def retrain(order: Order, *, stop: Callable[[], bool], announce: Callable[[str], None]) -> Outcome:
    """Retrain once. Raises TrainingError for what stands in the way, and Stopped; then nothing is published."""
    champion = find_champion(order.bundle, order.runs)
    if pause := _find_pause(order, champion):
        return Outcome(0, pause)
    recipe = choose_recipe(champion, order.recipe, order.settings)
    start = choose_start(order.start, champion, recipe)
    log = read_log(order.data, recipe.data, base=order.base)
    new = count_new(log, champion.learned_until_ms)
    least = max(LEAST_NEW, int(LEAST_NEW_SHARE * len(log.items)))
    if new < least:
        return Outcome(0, f"nothing to learn: {new:,} events are new since {champion.version}, it takes {least:,}")
    need = find_need(order.bundle, champion, log) if order.if_needed else None
    if order.if_needed and need is None:
        return Outcome(0, f"no need: {champion.version} knows what it is asked about, and {new:,} events are new")
    held = hold_out(log, new)
    if len(held.asked) < LEAST_QUESTIONS:
        said = f"{len(held.asked)} questions since {held.held_out_from} are too few to say: it takes {LEAST_QUESTIONS}"
        return Outcome(NOT_GOOD_ENOUGH, f"{said}; nothing was trained")
    plan = _describe_plan(champion, log, held, start, shorten(recipe, held, start, order.budget))
    announce(plan if need is None else f"{need}. {plan}")
    if order.dry_run:
        return Outcome(0, "dry run: nothing was trained or written")
    folder = order.runs / f"retrain-{datetime.now(tz=UTC):%Y%m%dT%H%M%S}"
    try:
        return _Retraining(order, champion, recipe, log, new, held, start, folder, stop, announce).run()
    except BaseException:
        if not (folder / REPORT).is_file():
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _find_pause(order: Order, champion: Champion) -> str | None:
    """Why there is nothing to do before the log is read, or None."""
    if champion.deployment.candidate and not order.replace:
        return _say_busy(champion.deployment)
    return f"nothing to learn: {order.data} holds no event yet" if is_new_archive(order.data) else None


@dataclass(frozen=True)
class _Retraining:
    """A retraining that is under way."""

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
        begun_s = time.process_time()
        metadata = self.champion.read_metadata()
        if self.order.items:
            metadata = {**(metadata or {}), **read_items(self.order.items)}
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
        network = load_network(run)
        assert isinstance(network, SequenceNetwork)  # noqa: S101 - choose_start refuses others
        types = () if run.event_features is None else run.event_features.event_types
        own = Graph.of_network(network, run.vocabulary, types)
        asked, V = self.held.asked, len(self.log.vocabulary)
        gains = {
            CANDIDATE: answer_questions(own, self.log, asked),
            CHAMPION: answer_questions(Graph.of_bundle(self.champion.bundle), self.log, asked),
        }
        for name in COMPARED:
            scorer = make_baseline(BASELINES[name](name=name), self.held.split.train, V, self.log.timestamps_ms)
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
        folder = write_run(run, self.order.bundle, metadata, gather=gather, lineage=lineage)
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
        raise DeploymentRefused(_say_busy(now))
    return set_candidate(version)(now)


def _say_busy(deployment: Deployment) -> str:
    return f"{deployment.candidate} is on trial: wait for its verdict, or replace it with --replace"


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


def _describe_plan(champion: Champion, log: Log, held: HeldOut, start: Start, recipe: Recipe) -> str:
    items = len(set(log.vocabulary.item_ids) - set(champion.bundle.vocabulary.item_ids))
    reason = f" ({start.why})" if start.why else ""
    budget = recipe.train.budget_seconds
    limit = f"{recipe.train.epochs} epochs" + (f" or {budget:g} s" if budget else "")
    new = count_new(log, champion.learned_until_ms)
    return (
        f"{len(log.items):,} events, {new:,} of them and {items:,} items new since {champion.version}; "
        f"{len(held.asked):,} questions since {held.held_out_from}; {start.name} start{reason}, "
        f"at most {limit}"
    )


def _gather_sessions(log: Log, vocabulary: Vocabulary) -> Sessions:
    """The sessions of a log for a vocabulary that has all its items, and maybe more."""
    index_of = np.append(0, vocabulary.encode(log.vocabulary.item_ids)).astype(np.int32)
    histories = Histories(index_of[log.items], log.offsets[:-1], log.offsets[1:])
    return gather_sessions(histories, len(vocabulary), log.timestamps_ms)
