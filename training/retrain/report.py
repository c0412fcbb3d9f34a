"""What a retraining came to, for people: report.md with a table and a picture, and retrain.json with all of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.contract.atomic_files import write_whole
from training.evaluation.bootstrap import estimate_clustered_intervals
from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.results import format_interval
from training.json_files import write_json
from training.plots.style import begin_picture, style_line, tidy, to_png
from training.retrain.offline_trial import CANDIDATE, CHAMPION, METRICS, Gains

REPORT, PICTURE, DOCUMENT = "report.md", "report.png", "retrain.json"
_DAY_MS = 86_400_000
_MOST_DAYS = 31
_LEAST_A_DAY = 20
_SEED = 12345

Document = Mapping[str, Any]


def write_report(folder: Path, document: Document, days: Mapping[str, Any]) -> None:
    """Write the report of a retraining, whatever it came to."""
    write_json(folder / DOCUMENT, document)
    write_whole(folder / PICTURE, draw_trial(document["offline"], days))
    write_whole(folder / REPORT, (format_report(document) + "\n").encode())


def format_report(document: Document) -> str:
    """The report as Markdown."""
    offline = document["offline"]
    rows = [
        f"| {name} | " + " | ".join(format_interval(metrics[metric]) for metric in METRICS) + " |"
        for name, metrics in offline["models"].items()
    ]
    start, items = document["start"], document["items"]
    lines = [
        f"# Retraining of {document['parent']}",
        "",
        f"**{document['verdict']}**",
        "",
        f"![NDCG@10 by model and by day]({PICTURE})",
        "",
        f"| model | {' | '.join(METRICS)} |",
        f"|---|{'---|' * len(METRICS)}",
        *rows,
        "",
        f"{offline['questions']:,} questions of {offline['users']:,} users since {document['held_out_from']}: all "
        "items ranked, seen ones excluded, an unknown item a miss. Means with 95 % intervals, users drawn whole.",
        "",
        f"- Candidate - champion: {format_interval(offline['difference'], '+')}",
        f"- Candidate - {offline['kept_share']:g} x champion: {format_interval(offline['lead'], '+')}; passes if "
        "the low end is above 0",
        f"- Candidate with the true history - with another user's: {format_interval(offline['history_gain'], '+')}; "
        "passes if the low end is above 0",
        f"- Log: {document['events']:,} events, {document['new_events']:,} newer than the champion's last",
        f"- Start: {start['name']}{' (' + start['why'] + ')' if start['why'] else ''}; {items['carried']:,} items "
        f"carried over, {items['placed']:,} placed beside others, {items['drawn']:,} drawn, {items['gone']:,} gone",
        f"- Processor seconds: {document['cpu_seconds']:,.0f}",
        *(f"- **WARNING**: {warning}" for warning in document["warnings"]),
    ]
    return "\n".join(lines)


def draw_trial(offline: Document, days: Mapping[str, Any]) -> bytes:
    """A PNG: NDCG@10 of every model, and of candidate and champion by day where there are some."""
    figure = begin_picture(11 if days else 6, 4.2)
    axes = figure.subplots(1, 2 if days else 1, squeeze=False)[0]
    names = list(offline["models"])
    for place, name in enumerate(names):
        _draw_point(axes[0], place, offline["models"][name][PRIMARY_METRIC], place, label=name)
    axes[0].set_xticks(range(len(names)), names)
    axes[0].set(title=f"{offline['questions']:,} held-out events", ylabel=PRIMARY_METRIC)
    if days:
        for place, name in enumerate((CANDIDATE, CHAMPION)):
            for position, metric in enumerate(days[name]):
                _draw_point(axes[1], position + (place - 0.5) / 5, metric, place, label=name if not position else None)
        axes[1].set_xticks(range(len(days["days"])), days["days"], rotation=45, ha="right")
        axes[1].set(title="By day")
        axes[1].legend(frameon=False)
    for plot in axes:
        plot.set_ylim(bottom=0)
        tidy(plot)
    return to_png(figure)


def measure_days(gains: Mapping[str, Gains], times_ms: NDArray[np.int64], owners: NDArray[np.int64]) -> dict[str, Any]:
    """NDCG@10 of candidate and champion on each day (UTC) of the questions; nothing for one day, or for very many."""
    numbers = times_ms // _DAY_MS
    days, counts = np.unique(numbers, return_counts=True)
    days = days[counts >= _LEAST_A_DAY]
    if not 2 <= len(days) <= _MOST_DAYS:
        return {}
    found: dict[str, Any] = {"days": [str(np.datetime64(int(day), "D")) for day in days]}
    for name in (CANDIDATE, CHAMPION):
        found[name] = []
        for day in days:
            rows = numbers == day
            values = gains[name][PRIMARY_METRIC][rows]
            low, high = estimate_clustered_intervals(values[:, None], owners[rows], _SEED)
            found[name].append({"value": float(values.mean()), "low": float(low[0]), "high": float(high[0])})
    return found


def _draw_point(axes: Any, at: float, metric: Mapping[str, float], place: int, *, label: str | None) -> None:  # noqa: ANN401 - matplotlib's axes
    value = metric["value"]
    reach = [[max(0.0, value - metric["low"])], [max(0.0, metric["high"] - value)]]
    axes.errorbar(at, value, yerr=reach, capsize=3, linestyle="", label=label, **style_line(place, 1))
