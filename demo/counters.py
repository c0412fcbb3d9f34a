"""The model beside every counter, on the same users, as `nextitem-train compare` measures it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from demo.commands import ask_trainer, console

COUNTERS = ("pop", "recent-pop", "markov", "rules", "item-knn", "session-knn")
"""Every model of the trainer that counts instead of learning."""
METRIC = "NDCG@10"


@dataclass(frozen=True)
class Lead:
    """By how much the model's NDCG@10 is above a counter's, with its 95 % interval over the same users."""

    counter: str
    ndcg: float
    """The counter's own."""
    value: float
    low: float
    high: float

    @property
    def share(self) -> float:
        """The lead over what the counter reaches."""
        return self.value / self.ndcg if self.ndcg else float("inf")


def measure_leads(run: Path, log: Path, picture: Path) -> list[Lead]:
    """Ask the trainer, which also draws the comparison. The smallest lead comes first. Raises DemoFailed."""
    words = (str(run), *COUNTERS, "--data", str(log), "--out", str(picture), "--json")
    return read_leads(ask_trainer("compare", *words))


def read_leads(document: str) -> list[Lead]:
    """The leads of what `compare --json` printed of the model and then the counters. The smallest comes first."""
    compared = json.loads(document)
    leads = []
    for counter, difference in compared["differences"].items():
        below = difference[METRIC]  # the counter's above the model's
        ndcg = compared["models"][counter][METRIC]["value"]
        leads.append(Lead(counter, ndcg, -below["value"], -below["high"], -below["low"]))
    return sorted(leads, key=lambda lead: lead.value)


def show_leads(leads: Sequence[Lead]) -> None:
    """Print a table and, in a sentence, who comes nearest."""
    table = Table()
    table.add_column("counter")
    for name in (METRIC, "the model is above it by", "95 % over the same users"):
        table.add_column(name, justify="right")
    for lead in leads:
        interval = f"{lead.low:+.4f} to {lead.high:+.4f}"
        table.add_row(lead.counter, f"{lead.ndcg:.4f}", f"{lead.value:+.4f} ({lead.share:+.0%})", interval)
    console.print(table)
    console.print(describe_nearest(leads[0]))


def describe_nearest(lead: Lead) -> str:
    """One sentence about the counter that comes nearest, or is ahead."""
    if lead.value <= 0:
        return f"The counter {lead.counter} is not behind the model."
    chance = "" if lead.low > 0 else "; of this lead alone, chance can explain all"
    return f"The model is ahead of every counter; {lead.counter} comes nearest{chance}."
