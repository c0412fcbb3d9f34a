"""Every model of the literature on MovieLens-1M and Amazon Beauty, as the papers ask. Only missing cells are measured.

    python -m benchmarks.models FOLDER              # with ml-1m/, beauty-paper/ and beauty-5core/
    python -m benchmarks.models FOLDER --only ml-1m

What it takes from nothing: some ten hours of one core, five of them for the two transformers with rules on
MovieLens-1M. Ctrl-C keeps what is finished and the run under way.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from training.benchmark.command import run_benchmark
from training.benchmark.work import Plan
from training.errors import TrainingError
from training.interrupt import Interrupt

COUNTERS = ("pop", "markov", "rules", "item-knn", "session-knn")
SHALLOW = ("bpr-mf", "fmc", "fpmc", "transrec", "cbow", "skip-gram")
RECURRENT = ("gru4rec", "gru4rec-plus")
COUNTED = "train.start=ppmi"
"""Where recurrent and convolutional networks begin: from random embeddings ten epochs only begin to teach them."""
PAPERS = ("P1", "P2", "P7")
SMALL = ("train.batch_size=128", "train.epochs=20")
SPARSE = ("model.max_length=50", "model.dropout=0.5")
"""What SASRec's authors change on sparse logs."""


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
    Group(name="ml-1m", log="ml-1m/ml-1m.txt.gz", models=(*COUNTERS, "ncf", *SHALLOW, "sasrec-original", "gsasrec")),
    Group(name="ml-1m", log="ml-1m/ml-1m.txt.gz", models=RECURRENT, settings=(COUNTED, "train.epochs=15")),
    Group(name="ml-1m", log="ml-1m/ml-1m.txt.gz", models=("caser",), settings=(COUNTED, "train.epochs=14")),
    Group(name="ml-1m", log="ml-1m/ml-1m.txt.gz", models=("sasrec-rules-ml-1m", "bert4rec-rules-ml-1m")),
    Group(
        name="ml-1m",
        log="ml-1m/ml-1m.txt.gz",
        items="ml-1m/items.tsv",
        models=("demo", "nova"),
        seeds=(1, 2, 3),
        settings=("train.epochs=10", "train.budget_seconds=3600"),
    ),
    Group(name="beauty", log="beauty-paper/beauty.txt.gz", models=(*COUNTERS, "sasrec-rules-beauty"), seeds=(1, 2, 3)),
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
        models=(*COUNTERS, "nova-beauty"),
        seeds=(1, 2, 3),
        settings=("data.format=lines",),
    ),
)


def main() -> int:
    """Measure what is missing, print all tables; 0. 2: files are missing or damaged. 130: interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("folder", type=Path, help="the logs of the papers")
    parser.add_argument("--only", choices=sorted({group.name for group in GROUPS}), help="one log")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/models"), metavar="DIR")
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmark"), metavar="DIR")
    options = parser.parse_args()
    chosen = [group for group in GROUPS if options.only in (None, group.name)]
    plans = [group.make_plan(options.folder, options.out, options.runs) for group in chosen]
    with Interrupt() as interrupt:
        try:
            tables = run_benchmark(plans, interrupt.is_asked)
        except TrainingError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code
    if tables is None:
        sys.stderr.write("stopped, and what is finished is kept: the same command goes on\n")
        return 128 + (interrupt.received or 0)
    sys.stdout.write(f"{tables}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
