"""The judge: reads the event log, ranks each event's item by champion and candidate, and keeps the sums.

It writes nothing to the store. Its place in the log and its sums are one file (live_scores.py), so that each event
counts once: as a trial of the champion, or as skipped for a reason.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from model.contract.deployment.live_scores import LiveScoresMalformed, write_live_scores
from model.contract.deployment.live_sums import Cursor, LiveScores, Skip
from service.errors import EngineUnavailable
from service.judge.attribution import Attribution
from service.judge.champion_guard import ChampionGuard
from service.judge.events import Damaged, LoggedEvent, find_before
from service.judge.log_reader import LogReader, Portion
from service.judge.models import BATCH, JudgedModels
from service.judge.scoring import Case, JudgedModel, Score, score_cases
from service.judge.token_bucket import TokenBucket
from service.judge.trial_keeper import TrialKeeper
from service.judge.user_cap import HOUR_MS, UserCap
from service.telemetry.logs import FaultLog

TICK_S: Final = 0.5
FOLLOW_S: Final = 1.0
WRITE_S: Final = 5.0
WRITE_TRIALS: Final = 500
BEHIND_MS: Final = 10_000
"""Once the oldest waiting event is older, the judge skips to the newest: what is dropped depends on load alone."""
FRESH_MS: Final = 1_000
"""How old an event may be that is not skipped then."""
WAITING: Final = 20_000
"""Maximum events that wait, some 20 MB. Beyond it the judge skips to the newest, too."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Decided:
    """An event, and why it is no trial, or its scores: the champion's, and the candidate's if there is any."""

    entry: LoggedEvent | Damaged
    skip: Skip | None = None
    scores: tuple[Score, Score | None] | None = None


class Judge:
    """Judges the events of one store. `patient`: without limits of age and rate, for a single run over a log."""

    def __init__(
        self,
        root: Path,
        scores: LiveScores,
        *,
        reader: LogReader,
        models: JudgedModels,
        trial: TrialKeeper,
        guard: ChampionGuard,
        attribution: Attribution,
        types: Sequence[str] = (),
        rate: float,
        cap: UserCap | None = None,
        patient: bool = False,
        dry_run: bool = False,
    ) -> None:
        self._root = root
        self._scores = scores
        self._reader = reader
        self._models = models
        self._trial = trial
        self._guard = guard
        self._attribution = attribution
        self._types = frozenset(types)
        self._bucket = TokenBucket(rate)
        self._cap = cap or UserCap()
        self._patient = patient
        self._dry_run = dry_run
        self._waiting: deque[LoggedEvent | Damaged] = deque()
        self._clock_ms: float | None = None
        """The store's time, less this process's monotonic one; None before it was read."""
        self._follow_s = self._write_s = float("-inf")
        self._unwritten, self._written = 0, True
        self._reading, self._writing = FaultLog(_log), FaultLog(_log)
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Judge until `stopping` is set, then write."""
        while not self.stopping.is_set():
            begun_s = time.monotonic()
            full = await self._try_step()
            left_s = TICK_S - (time.monotonic() - begun_s)
            if not full and left_s > 0:
                try:
                    await asyncio.wait_for(self.stopping.wait(), left_s)
                except TimeoutError:
                    continue
        self.write()

    async def run_once(self) -> None:
        """Judge all that the log holds now, then write. Raises RedisError, OSError, TimeoutError."""
        while await self.step() or self._waiting:
            pass
        self.write()

    async def _try_step(self) -> bool:
        """A step, or a line in the log: the judge outlives any outage of the store."""
        try:
            full = await self.step()
        except (RedisError, OSError, TimeoutError) as error:
            self._reading.report(f"The store cannot be read ({type(error).__name__}); judging goes on when it can")
            return False
        self._reading.clear()
        return full

    async def step(self) -> bool:
        """Read what is new, judge what there is time for, write if it is due. Returns whether there is more to read.

        Raises RedisError, OSError, TimeoutError: what was not counted then is read or judged again.
        """
        begun_s = time.monotonic()
        due = begun_s - self._write_s >= WRITE_S
        portion = await self._reader.read(recount=due or self._patient)
        self._take(portion)
        if begun_s - self._follow_s >= FOLLOW_S:  # after the first reading: from there on every event is accounted for
            self._follow()
        self._skip_to_newest()
        while self._waiting and (tokens := BATCH if self._patient else self._bucket.peek()) >= 1:
            await self._judge_some(min(BATCH, int(tokens)))
        if due or self._unwritten >= WRITE_TRIALS:
            self.write()
        if self._written and (
            await self._guard.check() or await self._trial.decide(self._now_ms(), self._measure_lag())
        ):
            self._follow()
        return portion.full

    def _follow(self) -> None:
        self._models.follow(self.write)
        self._attribution.follow(self._models.deployment)
        self._trial.follow(self._now_ms())
        self._follow_s = time.monotonic()

    def write(self) -> None:
        """Write live.json. Where that fails, counting goes on in memory."""
        now_ms = self._now_ms()
        self._scores.at_s = time.time()
        self._scores.lag_s = self._measure_lag()
        if self._clock_ms is not None:
            self._scores.prune(int(now_ms // HOUR_MS))
        self._write_s = time.monotonic()
        self._trial.keep_state()
        if self._dry_run:
            return
        try:
            write_live_scores(self._root, self._scores)
        except (OSError, LiveScoresMalformed) as error:
            self._writing.report(f"The live scores cannot be written: {error}. They are kept in memory; verdicts wait")
            self._written = False
        else:
            self._unwritten, self._written = 0, True
            self._writing.clear()

    def _take(self, portion: Portion) -> None:
        """Line up what was read, and count what could not be read any more."""
        self._clock_ms = portion.now_ms - 1000 * time.monotonic()
        if portion.begun:
            self._waiting = deque(entry for entry in self._waiting if entry.partition not in portion.begun)
            self._scores.cursors.update(portion.begun)
        for partition, events in portion.gone.items():
            self._scores.skip("gone", events)
            self._move(partition, None, events)
        self._waiting.extend(portion.entries)

    def _skip_to_newest(self) -> None:
        if self._patient or not self._waiting:
            return
        now_ms = self._now_ms()
        if now_ms - self._waiting[0].accepted_ms <= BEHIND_MS and len(self._waiting) <= WAITING:
            return
        while self._waiting and (now_ms - self._waiting[0].accepted_ms > FRESH_MS or len(self._waiting) > WAITING):
            self._count(_Decided(self._waiting.popleft(), "behind"))

    async def _judge_some(self, most: int) -> None:
        """Judge up to so many events that need it, and skip the others before and between them."""
        decided, asked = [], []
        for entry in self._waiting:
            one = _Decided(entry, self._find_reason(entry))
            decided.append(one)
            if one.skip is None and isinstance(entry, LoggedEvent):
                asked.append((one, entry))
                if len(asked) == most:
                    break
        if asked:
            histories = await self._reader.read_histories([entry for _, entry in asked])
            self._bucket.take(len(asked))
            self._score(asked, histories)
        for one in decided:
            self._waiting.popleft()
            self._count(one)

    def _find_reason(self, entry: LoggedEvent | Damaged) -> Skip | None:
        """Why an event is no trial, as far as it can be told without its history."""
        if isinstance(entry, Damaged):
            return "damaged"
        if entry.imported:
            return "imported"
        if self._types and entry.type not in self._types:
            return "type"
        if self._models.champion is None:
            return "no_model"
        return None if self._cap.take(entry.user_id, entry.accepted_ms) else "capped"

    def _score(self, asked: Sequence[tuple[_Decided, LoggedEvent]], histories: Sequence[object]) -> None:
        """Ask the models about the events whose history before them is known."""
        champion, candidate = self._models.champion, self._models.candidate
        if champion is None:
            raise RuntimeError("without a champion no event is asked about")
        with_events = champion.model.reads_events or (candidate is not None and candidate.model.reads_events)
        sound, cases = [], []
        for (one, entry), entries in zip(asked, histories, strict=True):
            before = find_before(entry, entries, with_events=with_events)
            if isinstance(before, str):
                one.skip = before
            else:
                sound.append(one)
                cases.append(Case(entry.item_id, before, entry.timestamp_ms))
        if not cases:
            return
        firsts = self._ask(champion, cases)
        seconds = self._ask(candidate, cases) if candidate and firsts else None
        for place, one in enumerate(sound):
            if firsts is None:
                one.skip = "failed"
            else:
                one.scores = (firsts[place], seconds[place] if seconds else None)

    def _ask(self, judged: JudgedModel, cases: Sequence[Case]) -> list[Score] | None:
        """A model's scores of cases; None if it fails. It then pauses."""
        try:
            return score_cases(judged.model, cases)
        except EngineUnavailable as error:
            self._models.drop(judged.series.version, f"it cannot rank: {error}")
            return None

    def _count(self, one: _Decided) -> None:
        """Count an event and move past it, in one step: both are written together."""
        entry, champion, candidate = one.entry, self._models.champion, self._models.candidate
        self._move(entry.partition, entry.entry_id, 1)
        if isinstance(entry, LoggedEvent):
            self._attribution.count(entry)
            self._trial.note(entry)
        if one.scores is None or champion is None:
            self._scores.skip(one.skip or "failed")
            return
        self._unwritten += 1
        hour = entry.accepted_ms // HOUR_MS
        first, second = one.scores
        self._scores.count(champion.series, hour, first.to_sums())
        if second is not None and candidate is not None and isinstance(entry, LoggedEvent):
            self._scores.count(candidate.series, hour, second.to_sums())
            self._trial.record(entry, first, second, visitor=self._cap.hash(entry.user_id))

    def _move(self, partition: int, entry_id: str | None, events: int) -> None:
        cursor = self._scores.cursors[partition]
        self._scores.cursors[partition] = Cursor(entry_id or cursor.entry_id, cursor.counted + events)

    def _measure_lag(self) -> float:
        """Seconds since the oldest waiting event was accepted."""
        return max(0.0, (self._now_ms() - self._waiting[0].accepted_ms) / 1000) if self._waiting else 0.0

    def _now_ms(self) -> float:
        """The store's time."""
        return (self._clock_ms or 0.0) + 1000 * time.monotonic()
