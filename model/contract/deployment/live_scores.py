"""live.json: what the judge has counted. It lies beside deployment.json; service, commands and trainer read it.

The judge's place in the log and its sums are one file, replaced whole. So each event counts once, however often the
judge is killed: what it had counted since the last write is forgotten together with the place that it had reached.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from model.contract.atomic_files import read_regular, write_whole
from model.contract.deployment.document import VARIANTS
from model.contract.deployment.live_sums import SKIPS, Cursor, LiveScores, Series, Skip, Sums, TrialFigures
from model.contract.manifest import is_count, is_number, is_plain_name

LIVE: Final = "live.json"
LIVE_MAX_BYTES: Final = 64 * 1024
FORMAT: Final = 1


class LiveScoresMalformed(Exception):
    """live.json is not what this version reads. The message says why."""


def read_live_scores(root: Path) -> LiveScores | None:
    """What the judge of a bundle folder has counted; None if there was none. Raises LiveScoresMalformed."""
    try:
        content = read_regular(root / LIVE, LIVE_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LiveScoresMalformed(f"{root / LIVE} cannot be read ({error.strerror})") from error
    if len(content) > LIVE_MAX_BYTES:
        raise LiveScoresMalformed(f"{root / LIVE} is larger than {LIVE_MAX_BYTES} bytes")
    return decode(content)


def write_live_scores(root: Path, scores: LiveScores) -> None:
    """Replace live.json whole. Raises OSError, and LiveScoresMalformed if a trial's state leaves no room."""
    write_whole(root / LIVE, encode(scores))


def encode(scores: LiveScores) -> bytes:
    """The text of live.json, at most LIVE_MAX_BYTES. The oldest hours are left out where they do not fit.

    Raises LiveScoresMalformed if all else does not fit.
    """
    hours = sorted(scores.hours.items())
    while True:
        content = _encode(scores, hours)
        if len(content) <= LIVE_MAX_BYTES:
            return content
        if not hours:
            raise LiveScoresMalformed(f"{LIVE} would be larger than {LIVE_MAX_BYTES} bytes")
        excess = len(content) - LIVE_MAX_BYTES
        hours = hours[1 + len(hours) * excess // len(content) :]


def decode(content: bytes) -> LiveScores:
    """Read live.json. Raises LiveScoresMalformed naming the first field that is wrong."""
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LiveScoresMalformed(f"{LIVE} is not JSON") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise LiveScoresMalformed(f"{LIVE} is not of format {FORMAT}")
    read: dict[str, Any] = {}
    for name, (into, parse) in _FIELDS.items():
        try:
            read[into] = parse(document[name])
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise LiveScoresMalformed(f"{LIVE}: {name!r} is missing or malformed") from error
    return LiveScores(**read)


def _encode(scores: LiveScores, hours: list[tuple[tuple[int, Series], Sums]]) -> bytes:
    figures = scores.figures
    document = {
        "format": FORMAT,
        "at": round(scores.at_s, 3),
        "lag": round(scores.lag_s, 3),
        "cursors": {f"{partition:02d}": [*cursor] for partition, cursor in sorted(scores.cursors.items())},
        "totals": [[*series, *sums.to_list()] for series, sums in scores.totals.items()],
        "hours": [[hour, *series, *sums.to_list()] for (hour, series), sums in hours],
        "skipped": scores.skipped,
        "attributed": [[*series, kind, events] for (series, kind), events in scores.attributed.items()],
        "trial": scores.trial,
        "figures": figures and [dict(figures.e_values), figures.difference, figures.pairs],
        "verdicts": scores.verdicts,
        "refused": scores.refused,
        "offline": [[*series, ndcg] for series, ndcg in scores.offline.items()],
        "loading": scores.loading,
    }
    return (json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n").encode()


def _series(variant: object, version: object) -> Series:
    if variant not in VARIANTS or not is_plain_name(version):
        raise ValueError("no series")
    return Series(variant, version)  # type: ignore[arg-type]  # as seen


def _rows(value: object) -> Iterator[list[Any]]:
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise ValueError("no rows")
    yield from value


def _count(value: object) -> int:
    if not is_count(value, least=0):
        raise ValueError("no count")
    return value  # type: ignore[return-value]  # as seen


def _time(value: object) -> float:
    if not is_number(value) or value < 0:  # type: ignore[operator]  # is_number has seen that it is one
        raise ValueError("no time")
    return float(value)  # type: ignore[arg-type]  # as above


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _cursors(value: Mapping[str, Any]) -> dict[int, Cursor]:
    read = {}
    for partition, (entry_id, counted) in value.items():
        milliseconds, _, sequence = _text(entry_id).partition("-")
        if int(milliseconds) < 0 or int(sequence) < 0:
            raise ValueError("no entry id")
        read[_count(int(partition))] = Cursor(entry_id, _count(counted))
    return read


def _totals(value: object) -> dict[Series, Sums]:
    return {_series(*row[:2]): Sums.from_list(row[2:]) for row in _rows(value)}


def _hours(value: object) -> dict[tuple[int, Series], Sums]:
    return {(_count(row[0]), _series(*row[1:3])): Sums.from_list(row[3:]) for row in _rows(value)}


def _skipped(value: Mapping[str, Any]) -> dict[Skip, int]:
    return {reason: _count(value.get(reason, 0)) for reason in SKIPS}


def _attributed(value: object) -> dict[tuple[Series, str], int]:
    read = {}
    for variant, version, kind, events in _rows(value):
        read[_series(variant, version), _text(kind)] = _count(events)
    return read


def _trial(value: object) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise ValueError("no trial")
    return value


def _figures(value: Any) -> TrialFigures | None:  # noqa: ANN401 - of a JSON document
    if value is None:
        return None
    e_values, difference, pairs = value
    if difference is not None:
        mean, low, high = map(_number, difference)
        difference = (mean, low, high)
    return TrialFigures({_text(verdict): _time(e) for verdict, e in e_values.items()}, difference, _count(pairs))


def _number(value: object) -> float:
    if not is_number(value):
        raise ValueError("no number")
    return float(value)  # type: ignore[arg-type]  # as seen


def _counts(value: Mapping[str, Any]) -> dict[str, int]:
    return {_text(name): _count(number) for name, number in value.items()}


_FIELDS: Final[Mapping[str, tuple[str, Any]]] = {
    "at": ("at_s", _time),
    "lag": ("lag_s", _time),
    "cursors": ("cursors", _cursors),
    "totals": ("totals", _totals),
    "hours": ("hours", _hours),
    "skipped": ("skipped", _skipped),
    "attributed": ("attributed", _attributed),
    "trial": ("trial", _trial),
    "figures": ("figures", _figures),
    "verdicts": ("verdicts", _counts),
    "refused": ("refused", lambda value: {_text(version): _text(why) for version, why in value.items()}),
    "offline": ("offline", lambda value: {_series(*row[:2]): _number(row[2]) for row in _rows(value)}),
    "loading": ("loading", _counts),
}
"""Of live.json: the attribute that each becomes, and how it is read."""
