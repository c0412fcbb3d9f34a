"""The curves as Markdown: how good each was at each mark, and when it crossed what papers print."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from training.evaluation.metrics import PRIMARY_METRIC

NAMES = {
    "nextitem": "nextitem",
    "rectools": "RecTools",
    "recbole": "RecBole",
    "bert4rec": "BERT4Rec",
    "sasrec": "SASRec",
}


def name_curve(curve: Mapping[str, Any]) -> str:
    """Whose network it is."""
    return f"{NAMES[curve['system']]} {NAMES[curve['network']]}"


def format_curves(curves: Sequence[Mapping[str, Any]]) -> str:
    """NDCG@10 of validation, and of test at the end, a line a curve. A curve that did not end has an asterisk."""
    marks = sorted({mark for curve in curves for mark in curve["terms"]["marks"]})
    lines = [
        ["validation NDCG@10 after CPU seconds", *(f"{mark:g}" for mark in marks), "test at the end", "steps"],
        ["---"] * (len(marks) + 3),
    ]
    for curve in curves:
        last = curve["checks"][-1] if curve["checks"] else None
        test = "" if last is None else f"{last['test']['HR@10']:.4f} / {last['test'][PRIMARY_METRIC]:.4f}"
        steps = "" if last is None else f"{last['steps']:,}"
        name = name_curve(curve) + ("" if curve["ended"] else " *")
        lines.append([name, *_place(curve["checks"], marks), test, steps])
    text = _join(lines)
    return text if all(curve["ended"] for curve in curves) else f"{text}\n\\* stopped before its end\n"


def format_published(document: Mapping[str, Any]) -> str:
    """CPU minutes at which each curve's test NDCG@10 crosses each published row; nothing for a log without rows."""
    rows, curves = document["published"], document["curves"]
    if not rows:
        return "no published rows are known of this log\n"
    lines = [
        ["CPU minutes to", "NDCG@10", *(name_curve(curve) for curve in curves)],
        ["---"] * (len(curves) + 2),
    ]
    lines += [
        [f"{row['model']} ({row['source']})", f"{row['height']:.4f}", *map(_format_crossing, row["crossed"])]
        for row in rows
    ]
    return _join(lines)


def _place(checks: Sequence[Mapping[str, Any]], marks: Sequence[float]) -> list[str]:
    """The validation of the last check from each mark up to the next; nothing where a long step has passed both."""
    cells = []
    for begin, end in pairwise([*marks, float("inf")]):
        inside = [check for check in checks if begin <= check["cpu_seconds"] < end]
        cells.append(f"{inside[-1]['validation'][PRIMARY_METRIC]:.4f}" if inside else "")
    return cells


def _format_crossing(crossed: Mapping[str, Any]) -> str:
    if crossed["cpu_minutes"] is None:
        return f"not within {crossed['measured_cpu_minutes']:.1f}"
    at_most = "" if crossed["after_cpu_minutes"] is not None else "at most "
    return f"{at_most}{crossed['cpu_minutes']:.1f}"


def _join(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
