"""`nextitem-serve import`: reads a log, then merges its events into the histories of a store."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from typing import Any, Final

from model.contract.event_logs.errors import LogError
from service.api.timestamps import now_ms
from service.errors import StoreNotDurable, StoreUnavailable
from service.history_import.log_file import LogFile
from service.history_import.options import ImportOptions
from service.history_import.progress import Progress, describe_seconds
from service.history_import.report import Report
from service.history_import.rules import Rules
from service.history_import.sender import send
from service.history_import.spill import Spill, UserRows
from service.history_import.target import open_histories, run_store
from service.settings import Settings
from service.store.history import DAY_MS, HistoryStore
from service.store.history_import import HistoryImport
from service.store.records import Outcome

PROGRAM: Final = "nextitem-serve import"
FAILED, BAD_LOG, INTERRUPTED = 1, 2, 130
"""Exit statuses: the store failed, or a user's data is damaged; the log or an option is no good; Ctrl-C."""
REWRITE_PAUSE_S = 1.0
"""How often a store that rewrites its file is asked whether it is done."""


def import_log(settings: Settings, **given: Any) -> int:  # noqa: ANN401 - the fields of ImportOptions
    """Run the command. Returns the exit status. Raises StartFailed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    report = Report()
    try:
        return _import(settings, ImportOptions(**given), report)
    except LogError as error:
        _say(f"{PROGRAM}: {error}")
        return BAD_LOG
    except StoreNotDurable:
        _say(
            f"{PROGRAM}: the store may lose events, as the line above says: set it right, or give --durability "
            f"relaxed to import all the same. {_describe_rest(report)}"
        )
    except StoreUnavailable as error:
        _say(f"{PROGRAM}: the store failed ({error.kind}), as the line above says. {_describe_rest(report)}")
    except OSError as error:
        _say(f"{PROGRAM}: {error.filename or 'a temporary file'} cannot be used: {error.strerror}")
    except KeyboardInterrupt:
        _say(f"{PROGRAM}: interrupted. {_describe_rest(report)}")
        return INTERRUPTED
    return FAILED


def _import(settings: Settings, options: ImportOptions, report: Report) -> int:
    rules = Rules(
        event_types=frozenset(settings.event_types),
        now_ms=now_ms(),
        only_types=frozenset(options.types),
        min_value=options.min_value,
        before_ms=options.before,
    )
    with LogFile(options, rules, report) as log, Spill(expected_bytes=log.expected_bytes) as spill:
        _tell(log.description)
        if options.dry_run:
            if not _read(log, spill, options, report):
                return BAD_LOG
            for user in _take_users(spill, settings, options, report):
                report.note_outcomes([Outcome.ACCEPTED] * len(user.rows))
        else:
            with run_store(settings) as url:
                asyncio.run(_require_safety(url, settings))  # before a long log is read in vain
                if not _read(log, spill, options, report):
                    return BAD_LOG
                _store(_take_users(spill, settings, options, report), url, settings, options, report)
    return _conclude(settings, options, report)


def _read(log: LogFile, spill: Spill, options: ImportOptions, report: Report) -> bool:
    """Read the whole log. False, with a message, if it has bad rows that are not to be skipped."""
    progress = Progress("Reading", sys.stderr)
    try:
        log.read_into(spill, progress)
    finally:
        taken_s = progress.end()
    _tell(f"{report.read:,} events read in {describe_seconds(taken_s)}")
    bad = report.fates["bad"]
    if bad and not options.skip_bad:
        _say(
            f"{PROGRAM}: {bad:,} bad row{'s' if bad > 1 else ''}, so nothing was imported; --skip-bad leaves them out. "
            f"The first: {report.first_bad}"
        )
    return not bad or options.skip_bad


def _take_users(spill: Spill, settings: Settings, options: ImportOptions, report: Report) -> Iterator[UserRows]:
    """All users with what is to be imported of them, counted."""
    for user in spill.take_users(keep=None if options.with_log else settings.history_length):
        report.note_user(user)
        yield user


async def _require_safety(url: str, settings: Settings) -> None:
    """Raise StoreUnavailable unless the store answers and keeps what it acknowledges."""
    histories = open_histories(url, settings)
    try:
        await histories.ping()
        if histories.guard.strict and histories.guard.waits_for_rewrite:
            _tell("Waiting until the store has rewritten its append-only file")
            while histories.guard.waits_for_rewrite:
                await asyncio.sleep(REWRITE_PAUSE_S)
                await histories.ping()
        histories.guard.require()
    finally:
        await histories.close()


def _store(users: Iterator[UserRows], url: str, settings: Settings, options: ImportOptions, report: Report) -> None:
    """Merge all users' events into the store. Raises StoreUnavailable."""
    progress = Progress("Importing", sys.stderr)

    def note(outcomes: list[Outcome]) -> None:
        report.note_outcomes(outcomes)
        progress.show(report.done / report.wanted, report.done)

    async def run() -> None:
        histories = open_histories(url, settings)
        try:
            await send(users, _open_import(histories, settings), logged=options.with_log, on_done=note)
        finally:
            await histories.close()

    try:
        asyncio.run(run())
    finally:
        taken_s = progress.end()
    rate = f", {report.done / taken_s:,.0f} a second" if taken_s >= 1 else ""
    _tell(f"{report.done:,} events of {report.users:,} users taken up in {describe_seconds(taken_s)}{rate}")


def _open_import(histories: HistoryStore, settings: Settings) -> HistoryImport:
    return HistoryImport(
        histories,
        history_length=settings.history_length,
        idle_ms=settings.history_days * DAY_MS,
    )


def _conclude(settings: Settings, options: ImportOptions, report: Report) -> int:
    """Say what became of all events. Returns the exit status."""
    if options.dry_run:
        _tell("Nothing was stored. Of an empty store this would become of the events:")
    for line in report.describe(kept=settings.history_length):
        _tell(line)
    if report.fates["stored"] and not options.with_log and not options.dry_run:
        _tell(f"To retrain on them later, keep the file: nextitem-train retrain --base {options.log}")
    return FAILED if report.fates["damaged"] else 0


def _describe_rest(report: Report) -> str:
    if not report.done:
        return "Nothing was imported; run the same command again."
    return (
        f"{report.done:,} of {report.wanted:,} events are done. What is stored stays, and nothing is stored twice: run "
        "the same command again to go on."
    )


def _tell(sentence: str) -> None:
    print(sentence, flush=True)  # noqa: T201 - what was asked for


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201 - for people; stdout is for what was asked for
