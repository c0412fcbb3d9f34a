"""Turns -> a table, ratios and goals, as a document and as text.

A ratio compares two turns of one round, since the machine's pace drifts: median, least and most over the rounds.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.serving.events import LUA
from benchmarks.serving.roster import EMPTY_ASGI, EMPTY_FASTAPI, ONNX_RUNTIME, OURS, PEERS, TEXTBOOK

Turn = Mapping[str, Any]
Spread = dict[str, float]

NUMBERS = ("rate", "p50_ms", "p90_ms", "p99_ms", "late_p99_ms", "failed", "cpu_us")


def spread(values: Iterable[float]) -> Spread:
    """Median, least, most, and of how many."""
    values = list(values)
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "rounds": len(values)}


def summarize(turns: Sequence[Turn]) -> dict[str, Any]:
    """Rows and comparisons of one case and one kind of histories."""
    found = {
        (load, name): _pick(turns, load, name) for load in ("closed", "alone", "batch") for name in _list_names(turns)
    }
    rows = [_describe_row(load, name, chosen) for (load, name), chosen in found.items() if chosen]
    shares = sorted({turn["share"] for turn in turns if turn["load"] == "open"})
    for share, name in ((share, name) for share in shares for name in _list_names(turns)):
        if chosen := [turn for turn in _pick(turns, "open", name) if turn["share"] == share]:
            rows.append(_describe_row(f"open, {100 * share:.0f} %", name, chosen))
    return {"rows": rows, "comparisons": _compare(turns)}


def summarize_events(turns: Sequence[Turn]) -> dict[str, Any]:
    """Rows of POST /events and of its script, and what share of the script's pace the better row reaches."""
    names = _list_names(turns)
    rows = [_describe_row("events", name, _pick(turns, "events", name)) for name in names]
    medians = {row["contestant"]: row["rate"]["median"] for row in rows if row["contestant"] != LUA}
    best = max(medians, key=medians.__getitem__, default="")
    ratio = _combine(_divide, *(_by_round(turns, "events", name, "rate") for name in (best, LUA)))
    return {"rows": rows, "comparisons": {f"{best} / {LUA}, events a second": spread(ratio)} if ratio else {}}


def _describe_row(load: str, name: str, turns: Sequence[Turn]) -> dict[str, Any]:
    cores = {who: statistics.median(turn["cores"][who] for turn in turns) for who in turns[0]["cores"]}
    found = {number: [turn[number] for turn in turns if turn[number] is not None] for number in NUMBERS}
    numbers: dict[str, Any] = {number: spread(values) for number, values in found.items() if values}
    if turns[0]["load"] == "open":
        numbers["offered"] = turns[0]["offered"]
    return {"load": load, "contestant": name, **numbers, "cores": cores}


def _compare(turns: Sequence[Turn]) -> dict[str, Spread]:
    """By what they say; those whose turns are missing are left out."""
    best = {kind: _find_best(turns, [kind]) for kind in (OURS, TEXTBOOK, EMPTY_FASTAPI, EMPTY_ASGI)}
    best["better framework"] = _find_best(turns, PEERS)
    ours = best[OURS]
    rate = {words: _by_round(turns, "closed", name, "rate") for words, name in best.items()}
    cpu = {words: _by_round(turns, "closed", name, "cpu_us") for words, name in best.items()}
    p50 = {name: _by_round(turns, "alone", name, "p50_ms") for name in _list_names(turns)}
    one, engine = p50.get(f"{OURS}, 1 worker", {}), p50.get(ONNX_RUNTIME, {})
    comparisons = {
        f"{ours} / {best[TEXTBOOK]}, answers a second": _combine(_divide, rate[OURS], rate[TEXTBOOK]),
        f"{ours} / {best['better framework']}, answers a second": _combine(
            _divide, rate[OURS], rate["better framework"]
        ),
        f"{best[TEXTBOOK]} / {ours}, CPU time of an answer": _combine(_divide, cpu[TEXTBOOK], cpu[OURS]),
        f"{best['better framework']} / {ours}, CPU time of an answer": _combine(
            _divide, cpu["better framework"], cpu[OURS]
        ),
        f"{ours} / {best[EMPTY_FASTAPI]}, answers a second": _combine(_divide, rate[OURS], rate[EMPTY_FASTAPI]),
        f"{ours} / {best[EMPTY_ASGI]}, answers a second": _combine(_divide, rate[OURS], rate[EMPTY_ASGI]),
    }
    slower = p50.get(f"{TEXTBOOK}, 1 worker", {})
    comparisons[f"{TEXTBOOK} / {OURS}, p50 of one request at a time"] = _combine(_divide, slower, one)
    for kind in (EMPTY_FASTAPI, EMPTY_ASGI):
        beyond = _combine(lambda a, b, c: a - b - c, one, p50.get(f"{kind}, 1 worker", {}), engine)
        comparisons[f"one request at a time, p50 beyond {kind} and {ONNX_RUNTIME}, ms"] = beyond
    batched = _by_round(turns, "batch", f"{OURS}, 1 worker", "rate")
    engines = [_by_round(turns, load, ONNX_RUNTIME, "rate") for load in ("closed", "batch")]
    share = _combine(lambda ours, *others: _divide(ours, max(others)), batched, *engines)
    comparisons[f"POST /recommend/batch / {ONNX_RUNTIME} on one thread, answers a second"] = share
    at_70 = {turn["round"]: turn["p99_ms"] for turn in _pick(turns, "open", ours) if turn["share"] == 0.7}
    comparisons["open loop at 70 %, p99 / p50 of one request at a time"] = _combine(_divide, at_70, one)
    return {words: spread(values) for words, values in comparisons.items() if values}


def _divide(above: float, below: float) -> float | None:
    return above / below if below else None


def _combine(combine: Callable[..., float | None], *columns: Mapping[int, float]) -> list[float]:
    """Of every round that all columns have; one in which there is nothing to divide by is left out."""
    rounds = sorted(set.intersection(*(set(column) for column in columns)))
    found = [combine(*(column[number] for column in columns)) for number in rounds]
    return [value for value in found if value is not None]


def _by_round(turns: Sequence[Turn], load: str, name: str, number: str) -> dict[int, float]:
    return {turn["round"]: turn[number] for turn in _pick(turns, load, name) if turn[number] is not None}


def _pick(turns: Sequence[Turn], load: str, name: str) -> list[Turn]:
    return [turn for turn in turns if turn["load"] == load and turn["contestant"] == name]


def _list_names(turns: Sequence[Turn]) -> list[str]:
    return list(dict.fromkeys(turn["contestant"] for turn in sorted(turns, key=lambda turn: turn["round"])))


def _find_best(turns: Sequence[Turn], kinds: Sequence[str]) -> str:
    """The system of these kinds with the best median; empty where none took part."""
    medians = {
        name: statistics.median(turn["rate"] for turn in chosen)
        for name in _list_names(turns)
        if name.partition(",")[0] in kinds and (chosen := _pick(turns, "closed", name))
    }
    return max(medians, key=medians.__getitem__, default="")


def format_start(started: Mapping[str, Any]) -> str:
    """How soon everybody answered, and each framework's settings by what they did, the one that was chosen first."""
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in started["start_s"].items())
    lines = [f"  first good answer after: {times}"]
    for kind, tried in started["tuning"].items():
        found = [
            f"{each['rows']} rows, {1e3 * each['wait_s']:g} ms: {each['rate']:,.0f}"
            + (f" (failed: {each['failed']})" if each["failed"] else "")
            for each in sorted(tried, key=lambda each: -each["rate"])
        ]
        lines.append(f"  {kind}, answers a second by batches and waits: {'; '.join(found)}")
    return "\n".join(lines) + "\n"


def format_summary(summary: Mapping[str, Any]) -> str:
    """A line a row, then a line a comparison: median (least to most)."""
    lines = [
        f"  {'load':<11}{'system':<24}{'answers a second':>28}{'p50':>9}{'p90':>9}{'p99 ms':>9}"
        f"{'CPU us':>9}{'generator':>11}{'server':>8}{'store':>7}{'idle':>6} cores"
    ]
    for row in summary["rows"]:
        times = "".join(f"{_format_median(row, number):>9}" for number in ("p50_ms", "p90_ms", "p99_ms"))
        cpu = _format_median(row, "cpu_us", ",.0f")
        cores = row["cores"]
        failed = f"  failed: {row['failed']['most']:.0f}" if row["failed"]["most"] else ""
        lines.append(
            f"  {row['load']:<11}{row['contestant']:<24}{format_spread(row['rate'], ',.0f'):>28}"
            f"{times}{cpu:>9}{cores['generator']:>11.2f}{cores['server']:>8.2f}"
            f"{cores['store']:>7.2f}{cores['idle contestants']:>6.2f}{failed}"
        )
    for words, values in summary["comparisons"].items():
        lines.append(f"  {words:<72}{format_spread(values, '.2f'):>24}")
    return "\n".join(lines) + "\n"


def _format_median(row: Mapping[str, Any], number: str, form: str = ".2f") -> str:
    return f"{row[number]['median']:{form}}" if number in row else "-"


def format_spread(values: Mapping[str, float], form: str) -> str:
    """Median (least to most)."""
    return f"{values['median']:{form}} ({values['least']:{form}} to {values['most']:{form}})"
