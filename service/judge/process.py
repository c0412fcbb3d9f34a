"""`nextitem-serve judge`: the process around the judge, its lock, its state, and its end."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from model.contract.atomic_files import hold_lock
from model.contract.deployment.live_scores import LiveScoresMalformed, read_live_scores
from model.contract.deployment.live_sums import LiveScores
from service.errors import StartFailed
from service.judge.attribution import Attribution
from service.judge.champion_guard import ChampionGuard
from service.judge.judge import Judge
from service.judge.log_reader import LogReader
from service.judge.models import JudgedModels
from service.judge.schedule import find_obstacle
from service.judge.trial_keeper import TrialKeeper
from service.judge.worker_counts import count_failing, observe_workers
from service.settings import Settings
from service.store.connection import connect

LOCK: Final = "judge.lock"
LOCK_WAIT_S: Final = 5.0
"""How long to wait for the folder while the judge of a killed service still holds it."""
_NICENESS: Final = 19

_log = logging.getLogger(__name__)


def judge_store(settings: Settings, *, once: bool, dry_run: bool) -> int:
    """Judge until told to stop, or once. Returns the exit status. Raises StartFailed."""
    if settings.redis_url is None:
        raise StartFailed("judge needs --redis-url; the service itself scores the events of an embedded store")
    if obstacle := find_obstacle(settings):
        raise StartFailed(obstacle)
    os.nice(_NICENESS)
    with contextlib.nullcontext() if dry_run else _hold(settings.bundle):
        scores = _read_scores(settings.bundle)
        before = scores.events
        try:
            asyncio.run(_judge(settings.redis_url, settings, scores, once=once, dry_run=dry_run))
        except (RedisError, OSError) as error:
            raise StartFailed("the store cannot be reached, or its log cannot be read") from error
        if once:
            said = "Would count %d events" if dry_run else "Counted %d events"
            _log.info(said, scores.events - before)
    return 0


async def _judge(url: str, settings: Settings, scores: LiveScores, *, once: bool, dry_run: bool) -> None:
    root = settings.bundle
    client = connect(url, password_file=settings.redis_password_file, max_connections=2)
    reader = LogReader(client, scores.cursors)
    models = JudgedModels(root, scores)
    judge = Judge(
        root,
        scores,
        reader=reader,
        models=models,
        trial=TrialKeeper(root, scores, models, observe=partial(observe_workers, client), dry_run=dry_run),
        guard=ChampionGuard(root, scores, models, count_failing=partial(count_failing, client), dry_run=dry_run),
        attribution=Attribution(scores, within_hours=settings.attribution_hours),
        types=settings.judge_types,
        rate=settings.judge_rate,
        patient=once,
        dry_run=dry_run,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, judge.stopping.set)
    try:
        await (judge.run_once() if once else judge.run())
    finally:
        await reader.close()
        await client.aclose()


def _read_scores(root: Path) -> LiveScores:
    """What was counted before. A file that cannot be read is begun anew: old events then count as skipped."""
    try:
        return read_live_scores(root) or LiveScores()
    except LiveScoresMalformed as error:
        _log.error("%s. Counting begins anew; counters of live scores start from 0", error)
        return LiveScores()


@contextlib.contextmanager
def _hold(root: Path) -> Iterator[None]:
    """Hold the lock of a bundle folder's judge. Raises StartFailed if another one holds it for LOCK_WAIT_S."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_lock(root / LOCK, patience_s=LOCK_WAIT_S))
        except BlockingIOError as error:
            raise StartFailed(f"another judge scores the models of {root}: there is one for a folder") from error
        except OSError as error:
            raise StartFailed(f"the judge cannot write {root / LOCK}: {error.strerror}") from error
        yield
