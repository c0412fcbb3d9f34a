"""All cells as Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from training.benchmark.cells import Document, group_cells
from training.benchmark.published import (
    BELOW,
    MORE,
    RECIPES,
    Row,
    Source,
    compare,
    count_as_held_out,
    find_sources,
    format_row,
    say_held_out,
)
from training.benchmark.verdict import format_verdict
from training.evaluation.metrics import PRIMARY_METRIC
from training.evaluation.protocol import PROTOCOLS
from training.evaluation.results import SHOWN, format_interval


def average_seeds(cells: Sequence[Document]) -> list[Document]:
    """A row a model, the best by NDCG@10 first: means over its seeds, of the ends of the intervals too."""
    by_model: dict[str, list[Document]] = {}
    for cell in cells:
        by_model.setdefault(cell["model"], []).append(cell)
    rows = []
    for model, seeds in by_model.items():
        metrics = _average([cell["metrics"] for cell in seeds])
        costs = {key: fmean(cell[key] for cell in seeds) for key in ("training_seconds", "ms_per_request")}
        known = {"kind": seeds[0]["kind"], "parameters": seeds[0]["parameters"], "seeds": len(seeds)}
        row = {"model": model, "metrics": metrics, **costs, **known}
        if all("discounted" in cell for cell in seeds):
            row["discounted"] = _average([cell["discounted"]["metrics"] for cell in seeds])
            row["discounts"] = sorted({cell["discounted"]["by"] for cell in seeds})
        rows.append(row)
    return sorted(rows, key=lambda row: -float(row["metrics"][PRIMARY_METRIC]["value"]))


def _average(seeds: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        metric: {end: fmean(each[metric][end] for each in seeds) for end in ("value", "low", "high")}
        for metric in SHOWN
    }


def format_markdown(
    cells: Sequence[Document], verdicts: Mapping[tuple[str, str], Mapping[str, Any] | None], picture: str
) -> str:
    """A table for each log and protocol, with the verdict over it."""
    lines = ["# Benchmark", "", f"![Every model with its interval]({picture})"]
    for (data, protocol), group in group_cells(cells).items():
        sizes, held_out = group[0]["data"], group[0]["recipe"]["data"]["held_out_users"]
        by_time = PROTOCOLS[protocol].split == "time"
        lines += [
            "",
            f"## {data}, {protocol}",
            "",
            f"{PROTOCOLS[protocol].summary}; {sizes['users']:,} users, {sizes['items']:,} items, "
            f"{sizes['events']:,} events, {group[0]['questions']:,} questions. Means over users with 95 % intervals; "
            "ms a request: one history at a time, ranked in the trainer's process."
            + ("" if by_time else f" The event before the test trains, but {say_held_out(held_out)}."),
            "",
        ]
        verdict = verdicts.get((data, protocol))
        kinds = {cell["model"]: cell["kind"] for cell in group}
        lines += [f"**{format_verdict(data, protocol, verdict, kinds)}**", ""] if verdict else []
        lines += [
            f"| model | kind | seeds | {' | '.join(SHOWN)} | parameters | training, s | ms a request |",
            f"|---|---|---|{'---|' * len(SHOWN)}---|---|---|",
        ]
        rows = average_seeds(group)
        lines += [_format_row(row) for row in rows]
        if any("discounted" in row for row in rows):
            lines += ["", *_format_discounted(rows)]
        for source in find_sources(sizes["fingerprint"], protocol):
            lines += _format_beside(source, rows, held_out)
    return "\n".join(lines) + "\n"


def _format_discounted(rows: Sequence[Document]) -> list[str]:
    """The same weights with popularity taken off the scores."""
    head = [
        'With popularity discounted as validation prefers (docs/reference/protocols.md, "What P1 rewards"):',
        "",
        f"| model | discount | {' | '.join(SHOWN)} |",
        f"|---|---|{'---|' * len(SHOWN)}",
    ]
    ranked = sorted(
        (row for row in rows if "discounted" in row), key=lambda row: -float(row["discounted"][PRIMARY_METRIC]["value"])
    )
    return head + [
        f"| {row['model']} | {' to '.join(f'{by:g}' for by in row['discounts'])} | "
        f"{' | '.join(format_interval(row['discounted'][metric]) for metric in SHOWN)} |"
        for row in ranked
    ]


def _format_beside(source: Source, rows: Sequence[Document], held_out: int | None) -> list[str]:
    """What a paper prints, and whether it was reached; nothing where none of its models is there.

    `held_out`: how many users' event before the test trained none of the rows.
    """
    unfair = count_as_held_out(held_out) < count_as_held_out(source.held_out_users)

    def mark(metrics: Mapping[str, Mapping[str, float]], printed: Row) -> str:
        found = compare(metrics, printed)
        return found + MORE if unfair and found != BELOW else found

    discounted = any("discounted" in row for row in rows)
    found = {row["model"]: row for row in rows}
    beside = []
    for name, printed in source.rows.items():
        for row in (found[model] for model in RECIPES[name] if model in found):
            marks = [mark(row["metrics"], printed)]
            if discounted:
                marks.append(mark(row["discounted"], printed) if "discounted" in row else "")
            beside.append(f"| {row['model']} | {name}: {format_row(printed)} | {' | '.join(marks)} |")
    if not beside:
        return []
    but = "; ".join([f"{say_held_out(source.held_out_users)} event before the test is held out there", source.but])
    but = f" ({but.removesuffix('; ')})"
    return [
        "",
        f"Beside {source.name}{but}; within: below, but inside the 95 % intervals of all metrics:",
        "",
        f"| model | published {' / '.join(SHOWN)} | here |{' discounted |' if discounted else ''}",
        f"|---|---|---|{'---|' if discounted else ''}",
        *beside,
    ]


def _format_row(row: Document) -> str:
    metrics = " | ".join(format_interval(row["metrics"][metric]) for metric in SHOWN)
    parameters = f"{row['parameters']:,}" if row["parameters"] else "none"
    costs = f"{row['training_seconds']:,.1f} | {row['ms_per_request']:.2f}"
    return f"| {row['model']} | {row['kind']} | {row['seeds']} | {metrics} | {parameters} | {costs} |"


def format_csv(cells: Sequence[Document]) -> str:
    """A line a cell, every metric with its interval."""
    metrics = sorted({metric for cell in cells for metric in cell["metrics"]})
    told = ("model", "kind", "protocol", "seed", "questions", "epochs", "training_seconds", "parameters")
    columns = ["data", *told, "ms_per_request", *(f"{m} {end}".strip() for m in metrics for end in ("", "low", "high"))]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for cell in cells:
        values = [
            cell["metrics"].get(metric, {}).get(end, "") for metric in metrics for end in ("value", "low", "high")
        ]
        writer.writerow([cell["data"]["name"], *(cell[key] for key in told), cell["ms_per_request"], *values])
    return buffer.getvalue()
