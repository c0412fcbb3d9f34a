"""What the demo and the second day print: headings with their seconds, bars, and tables."""

import json
import math
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.commands import console, head
from demo.live import Course, Live, draw_bars

ENOUGH = 20.0
"""1 / alpha: an e-value this high promotes."""


class Phases:
    """Numbers the headings, and counts the seconds between them."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._begun: list[tuple[str, float]] = []

    def begin(self, title: str) -> None:
        """Print a heading."""
        self._begun.append((title, time.monotonic()))
        head(len(self._begun), title)

    def count(self) -> str:
        """The seconds of each phase, and of all."""
        now_s = time.monotonic()
        ends = [began_s for _, began_s in self._begun[1:]] + [now_s]
        parts = " + ".join(f"{end_s - at_s:.0f}" for (_, at_s), end_s in zip(self._begun, ends, strict=True))
        return f"{parts} = [bold]{now_s - self._began_s:.0f} s[/]"

    def end(self) -> None:
        """Print what each phase took, and all of them the processor."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in used)
        console.print(f"{self.count()}, {cpu_s:.0f} s of processor time")


class Advance:
    """Moves a bar on; `done` is how far it is."""

    def __init__(self, progress: Progress, title: str, total: float) -> None:
        self._progress, self._bar = progress, progress.add_task(title, total=total)
        self.done = 0.0

    def __call__(self, by: float) -> None:
        """Move it on."""
        self.done += by
        self._progress.update(self._bar, completed=self.done)


@contextmanager
def show_traffic(title: str, total: float) -> Iterator[Advance]:
    """A bar of events that are sent, or of the seconds that they take."""
    with Progress(TextColumn("{task.description:<10}"), BarColumn(), TimeElapsedColumn(), console=console) as progress:
        advance = Advance(progress, title, total)
        yield advance
        advance(max(0.0, total - advance.done))


class Evidence:
    """Fills a bar with the evidence: the logarithm of the e-value, between none (1) and enough."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bar = progress.add_task("evidence", total=math.log(ENOUGH), value="1")

    def __call__(self, e_value: float) -> None:
        """Show an e-value. It may fall, too."""
        height = min(math.log(ENOUGH), max(0.0, math.log(max(e_value, 1e-9))))
        self._progress.update(self._bar, completed=height, value=_round(e_value))


def _round(e_value: float) -> str:
    """Two digits: the journal has no more of its logarithm."""
    return f"{float(f'{e_value:.2g}'):,.{1 if e_value < 10 else 0}f}"


@contextmanager
def show_evidence() -> Iterator[Evidence]:
    """A bar of the evidence that the candidate is better."""
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn(f"{{task.fields[value]}} of {ENOUGH:g}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield Evidence(progress)


def show_table(offline: Mapping[str, Any]) -> None:
    """What each model made of the held-out events (`offline` of retrain.json)."""
    table = Table(title=f"{offline['questions']:,} held-out events, newer than all training", title_justify="left")
    for name in ("model", "NDCG@10", "HR@10"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for model, metrics in offline["models"].items():
        cells = [f"{metric['value']:.4f} [{metric['low']:.4f}, {metric['high']:.4f}]" for metric in metrics.values()]
        table.add_row(model, *cells, style="bold green" if model == "candidate" else None)
    console.print(table)


def show_journal(lines: str, *, since: int = 0) -> None:
    """Who changed what after a generation, and the first reason for it, of the journal's lines as JSON."""
    table = Table(title="The journal", title_justify="left")
    for name in ("", "by", "action", "why"):
        table.add_column(name)
    for line in map(json.loads, lines.splitlines()):
        if line["generation"] <= since:
            continue
        table.add_row(str(line["generation"]), line["by"], line["action"], line["why"].partition(";")[0])
    console.print(table)


def show_quality(phases: Mapping[str, Live], course: Course) -> None:
    """Live quality by phase, and its course."""
    table = Table(title="Live quality of the model that answers", title_justify="left")
    table.add_column("")
    for name in ("NDCG@10", "items unknown to it", "events"):
        table.add_column(name, justify="right")
    for name, live in phases.items():
        table.add_row(name, f"{live.ndcg:.4f}", f"{live.unknown_share:.0%}", f"{live.trials:,.0f}")
    console.print(table)
    bars = draw_bars(new.ndcg for _, _, new in course.split() if new.trials)
    console.print(f"NDCG@10 over the day  {bars}")
