"""All cells as Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from training.benchmark.cells import COUNTER, HYBRID, Document, group_cells, read_evaluation
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
from training.evaluation.results import SHOWN, format_interval, number_evaluation

OLDER = " †"
_EXPLAIN_OLDER = (
    "† measured before repeated targets and a user's own history were treated as they are now "
    "(docs/decisions/0030 and 0031)."
)


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
        known["evaluation"] = min(read_evaluation(cell) for cell in seeds)
        row = {"model": model, "metrics": metrics, **costs, **known}
        if all("training_cpu_seconds" in cell for cell in seeds):  # older cells have no such figure
            row["training_cpu_seconds"] = fmean(cell["training_cpu_seconds"] for cell in seeds)
        if all("discounted" in cell for cell in seeds):
            row["discounted"] = _average([cell["discounted"]["metrics"] for cell in seeds])
            row["discounts"] = sorted({cell["discounted"]["by"] for cell in seeds})
        apart = [cell["targets"]["new"]["metrics"] for cell in seeds if "targets" in cell]
        if len(apart) == len(seeds) and None not in apart:
            row["new"] = _average(apart)
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
        shown = " | ".join(SHOWN)
        lines += [
            f"| model | kind | seeds | held out, users | {shown} | parameters | training, s | CPU, s | ms a request |",
            f"|---|---|---|---|{'---|' * len(SHOWN)}---|---|---|---|",
        ]
        rows = average_seeds(group)
        share = max((cell["targets"]["share"] for cell in group if "targets" in cell), default=0.0)
        older = {row["model"] for row in rows if _is_older(row, protocol, share)}
        who = "by time" if by_time else "all" if held_out is None else f"{held_out:,}"
        lines += [_format_row(row, who, OLDER if row["model"] in older else "") for row in rows]
        lines += ["", _EXPLAIN_OLDER] if older else []
        lines += ["", *_format_new(rows, share)] if share else []
        if any("discounted" in row for row in rows):
            lines += ["", *_format_discounted(rows)]
        for source in find_sources(sizes["fingerprint"], protocol):
            lines += _format_beside(source, rows, held_out)
    return "\n".join(lines) + "\n"


def _is_older(row: Document, protocol: str, share: float) -> bool:
    """Whether a row is of an older evaluation that may differ from today's, repeated targets having such a share."""
    return row["evaluation"] < number_evaluation(protocol) and (row["kind"] in (COUNTER, HYBRID) or share > 0)


def _format_new(rows: Sequence[Document], share: float) -> list[str]:
    """The same over new targets alone."""
    return [
        f"{share:.1%} of the targets are items that their user had met before. Over the others:",
        "",
        f"| model | {' | '.join(SHOWN)} |",
        f"|---|{'---|' * len(SHOWN)}",
        *(
            f"| {row['model']} | {' | '.join(format_interval(row['new'][metric]) for metric in SHOWN)} |"
            for row in rows
            if "new" in row
        ),
    ]


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


def _format_row(row: Document, held_out: str, mark: str) -> str:
    metrics = " | ".join(format_interval(row["metrics"][metric]) for metric in SHOWN)
    parameters = f"{row['parameters']:,}" if row["parameters"] else "none"
    cpu = f"{row['training_cpu_seconds']:,.1f}" if "training_cpu_seconds" in row else ""
    costs = f"{row['training_seconds']:,.1f} | {cpu} | {row['ms_per_request']:.2f}"
    return (
        f"| {row['model']}{mark} | {row['kind']} | {row['seeds']} | {held_out} | {metrics} | {parameters} | {costs} |"
    )


def format_csv(cells: Sequence[Document]) -> str:
    """A line a cell, every metric with its interval."""
    metrics = sorted({metric for cell in cells for metric in cell["metrics"]})
    told = ("model", "kind", "protocol", "seed", "questions", "epochs", "training_seconds", "parameters")
    measured = (f"{metric} {end}".strip() for metric in metrics for end in ("", "low", "high"))
    columns = ["data", *told, "ms_per_request", "held_out_users", "evaluation", *measured]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for cell in cells:
        values = [
            cell["metrics"].get(metric, {}).get(end, "") for metric in metrics for end in ("value", "low", "high")
        ]
        held_out = cell["recipe"]["data"]["held_out_users"]
        treated = ["all" if held_out is None else held_out, read_evaluation(cell)]
        writer.writerow([cell["data"]["name"], *(cell[key] for key in told), cell["ms_per_request"], *treated, *values])
    return buffer.getvalue()
