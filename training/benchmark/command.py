"""`benchmark`: measure what is missing, then write the tables of all that is there."""

from collections.abc import Callable, Sequence
from pathlib import Path

from model.contract.atomic_files import write_whole
from training.benchmark.cells import group_cells, read_cells
from training.benchmark.plan import Plan, measure_missing
from training.benchmark.plot import draw_benchmark
from training.benchmark.table import format_csv, format_markdown
from training.benchmark.verdict import judge, read_verdict


def run_benchmark(plans: Sequence[Plan], stop: Callable[[], bool]) -> str | None:
    """Measure the missing cells of plans that share `out` and `runs`, and write all tables.

    Returns them as Markdown, or None after a stop.
    """
    for plan in plans:
        if not measure_missing(plan, stop):
            return None
    out, runs = plans[0].out, plans[0].runs
    for group in group_cells(read_cells(out)).values():
        judge(group, out=out, runs=runs)
    return write_tables(out)


def write_tables(out: Path) -> str:
    """The tables of all cells under a folder, written and returned."""
    cells = read_cells(out)
    verdicts = {key: read_verdict(group, out=out) for key, group in group_cells(cells).items()}
    text = format_markdown(cells, verdicts, "benchmark.png")
    write_whole(out / "benchmark.csv", format_csv(cells).encode())
    write_whole(out / "benchmark.png", draw_benchmark(cells))
    write_whole(out / "benchmark.md", text.encode())
    return text
