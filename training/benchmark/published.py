"""What papers print for the models of the benchmark, so that a reader sees at once which row is reached.

The rows are data (published.toml). They compare under one protocol on one log, which its fingerprint names.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.evaluation.results import SHOWN

Row = tuple[float, float, float | None]
"""HR@10, NDCG@10 and MRR, None where none is printed."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One table of results."""

    name: str
    fingerprint: str
    """Of the log that it is about."""
    protocol: str
    rows: dict[str, Row]
    """By what the table calls the model."""
    held_out_users: int | None
    """How many users' event before the test is in no training data, all users' being None, as data.held_out_users."""
    but: str = ""
    """What else keeps its numbers from comparing exactly."""


MORE = ", on more events"
"""Beside what was reached by a model that trained on events which the published one did not have."""
REACHED, WITHIN, BELOW = "reached", "within", "below"


def _read_sources(document: Mapping[str, Any]) -> tuple[Source, ...]:
    """The tables of published.toml. A row without MRR has None there."""
    return tuple(
        Source(
            name=source["name"],
            fingerprint=document["logs"][source["log"]],
            protocol=source["protocol"],
            rows={model: (*row, None)[:3] for model, row in source["rows"].items()},
            held_out_users=source.get("held_out_users"),
            but=source.get("but", ""),
        )
        for source in document["sources"]
    )


_DOCUMENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
LOGS: Mapping[str, str] = _DOCUMENT["logs"]
"""The fingerprint of each log that a table is about, by name."""
RECIPES: Mapping[str, Sequence[str]] = _DOCUMENT["recipes"]
"""Recipes of each model, by what the tables call it."""
SOURCES = _read_sources(_DOCUMENT)


def find_sources(fingerprint: str, protocol: str) -> list[Source]:
    """The tables about one log under one protocol."""
    return [source for source in SOURCES if source.fingerprint == fingerprint and source.protocol == protocol]


def compare(metrics: Mapping[str, Mapping[str, float]], row: Row) -> str:
    """Whether metrics reach a row: in all of its numbers, within their 95 % intervals in all, or not."""
    pairs = [(metrics[name], printed) for name, printed in zip(SHOWN, row, strict=True) if printed is not None]
    if all(round(found["value"], 4) >= printed for found, printed in pairs):
        return REACHED
    return WITHIN if all(round(found["high"], 4) >= printed for found, printed in pairs) else BELOW


def count_as_held_out(held_out_users: int | None) -> float:
    """So many users' event before the test is held out, everybody's where none are named."""
    return math.inf if held_out_users is None else held_out_users


def say_held_out(held_out_users: int | None) -> str:
    """Whose event before the test is in no training data."""
    if not held_out_users:
        return "everybody's" if held_out_users is None else "nobody's"
    return f"{held_out_users:,} users'"


def format_row(row: Row) -> str:
    """As papers print it."""
    return " / ".join(f"{printed:.4f}" for printed in row if printed is not None)
