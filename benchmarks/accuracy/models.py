"""Every model of the literature on MovieLens-1M and Amazon Beauty, as the papers ask. Only missing cells are measured.

    python -m benchmarks.accuracy.models FOLDER              # with ml-1m/, beauty-paper/ and beauty-5core/
    python -m benchmarks.accuracy.models FOLDER --only ml-1m
    python -m benchmarks.accuracy.models --check             # which cells are of other recipes than today's; no logs

What it takes from nothing: some ten hours of one core, five of them for the two transformers with rules on
MovieLens-1M. Ctrl-C keeps what is finished and the run under way.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.benchmark.command import run_benchmark
from training.benchmark.plan import Plan
from training.errors import TrainingError
from training.fit.interrupt import Interrupt

BASELINES = ("pop", "markov", "rules", "item-knn", "session-knn")
SHALLOW = ("bpr-mf", "fmc", "fpmc", "transrec", "cbow", "skip-gram")
RECURRENT = ("gru4rec", "gru4rec-plus")
COUNTED = "train.item_init=ppmi"
"""Where recurrent and convolutional networks begin: from random embeddings ten epochs only begin to teach them."""
PAPERS = ("P1", "P2", "P7")
SMALL = ("train.batch_size=128", "train.epochs=20")
SPARSE = ("model.max_length=50", "model.dropout=0.5")
"""What SASRec's authors change on sparse logs."""
BEFORE_COUNTS = (
    *("model.dropout=0.2", "model.positions=learned", "model.rules_per_item=null", "train.item_init=random"),
    *("train.patience=140", "train.learning_rate=1e-3", "train.last_item_share=0.5", "train.crop_probability=0.8"),
)
"""What both recipes said when their cells were measured: the networks alone, begun at random."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Recipes that are measured alike on one log."""

    name: str
    log: str
    items: str | None = None
    protocols: tuple[str, ...] = PAPERS
    models: tuple[str, ...]
    seeds: tuple[int, ...] = (1,)
    settings: tuple[str, ...] = ()

    def make_plan(self, folder: Path, out: Path, runs: Path) -> Plan:
        """The same with its files. All but 2,048 users' event before the test trains, as in most published numbers."""
        return Plan(
            data=folder / self.log,
            items=folder / self.items if self.items else None,
            name=self.name,
            models=self.models,
            protocols=self.protocols,
            seeds=self.seeds,
            settings=("data.held_out_users=2048", *self.settings),
            out=out,
            runs=runs,
        )


GROUPS = (
    Group(name="ml-1m", log="ml-1m/ml-1m.txt.gz", models=(*BASELINES, "ncf", *SHALLOW, "sasrec-original", "gsasrec")),
    Group(name="ml-1m", log="ml-1m/ml-1m.txt.gz", models=RECURRENT, settings=(COUNTED, "train.epochs=15")),
    Group(name="ml-1m", log="ml-1m/ml-1m.txt.gz", models=("caser",), settings=(COUNTED, "train.epochs=14")),
    Group(name="ml-1m", log="ml-1m/ml-1m.txt.gz", models=("sasrec-rules-ml-1m", "bert4rec-rules-ml-1m")),
    Group(
        name="ml-1m",
        log="ml-1m/ml-1m.txt.gz",
        items="ml-1m/items.tsv",
        models=("bert4rec-small", "nova"),
        seeds=(1, 2, 3),
        settings=(*BEFORE_COUNTS, "train.epochs=10", "train.budget_seconds=3600"),
    ),
    Group(
        name="ml-1m",
        log="ml-1m/ml-1m.txt.gz",
        models=("bert4rec-counts-ml-1m", "bert4rec-wide-ml-1m"),
        seeds=(2,),
    ),
    Group(name="beauty", log="beauty-paper/beauty.txt.gz", models=(*BASELINES, "sasrec-rules-beauty"), seeds=(1, 2, 3)),
    Group(name="beauty", log="beauty-paper/beauty.txt.gz", models=("bert4rec-counts-beauty",)),
    Group(name="beauty", log="beauty-paper/beauty.txt.gz", models=SHALLOW, settings=SMALL),
    Group(name="beauty", log="beauty-paper/beauty.txt.gz", models=(*RECURRENT, "caser"), settings=(*SMALL, COUNTED)),
    Group(
        name="beauty",
        log="beauty-paper/beauty.txt.gz",
        models=("ncf",),
        settings=("train.batch_size=128", "train.epochs=3"),
    ),
    Group(
        name="beauty",
        log="beauty-paper/beauty.txt.gz",
        models=("gsasrec",),
        settings=("train.batch_size=128", "train.epochs=6", "model.max_length=50"),
    ),
    Group(
        name="beauty",
        log="beauty-paper/beauty.txt.gz",
        models=("sasrec-original",),
        settings=(*SMALL, *SPARSE),
    ),
    Group(
        name="beauty-5core",
        log="beauty-5core/Beauty.txt.gz",
        items="beauty-5core/Beauty_item2attributes.json.gz",
        protocols=("P5", "P6s"),
        models=(*BASELINES, "nova-beauty"),
        seeds=(1, 2, 3),
        settings=("data.format=lines",),
    ),
)


def list_stale(plans: Sequence[Plan]) -> list[str]:
    """A line for each cell that is missing or of another recipe than today's. Raises InputError for a damaged one."""
    cells = [cell for plan in plans for cell in plan.list_cells() if not cell.is_finished()]
    return [f"{cell.path}: {'of another recipe' if cell.path.exists() else 'missing'}" for cell in cells]


def check(plans: Sequence[Plan]) -> int:
    """Print which cells are stale; 1 where some are, 2 where one is damaged."""
    try:
        stale = list_stale(plans)
    except TrainingError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    for line in stale:
        sys.stdout.write(f"{line}\n")
    count = sum(len(plan.list_cells()) for plan in plans)
    sys.stdout.write(f"{count - len(stale)} of {count} cells are of today's recipes and settings\n")
    return 1 if stale else 0


def main() -> int:
    """Measure what is missing, print all tables; 0. 2: files are missing or damaged. 130: interrupted.

    With `--check`, measure nothing: 0 where every cell is of today's recipe, 1 and a list where not.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.models", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="the logs of the papers")
    parser.add_argument("--check", action="store_true", help="list cells that are missing or of another recipe; 1 then")
    parser.add_argument("--only", choices=sorted({group.name for group in GROUPS}), help="one log")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/models"), metavar="DIR")
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmark"), metavar="DIR")
    options = parser.parse_args()
    if options.folder is None and not options.check:
        parser.error("name the folder of the logs")
    chosen = [group for group in GROUPS if options.only in (None, group.name)]
    plans = [group.make_plan(options.folder or Path(), options.out, options.runs) for group in chosen]
    if options.check:
        return check(plans)
    with Interrupt() as interrupt:
        try:
            tables = run_benchmark(plans, interrupt.is_asked)
        except TrainingError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code
    if tables is None:
        sys.stderr.write("stopped; finished cells are kept: run the same command to continue\n")
        return 128 + (interrupt.received or 0)
    sys.stdout.write(f"{tables}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
