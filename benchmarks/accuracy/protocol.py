"""Does the evaluator reproduce what the papers print for popularity? No training can blur that.

`make check-protocol DATA=FOLDER` runs it; docs/reference/protocols.md says where the files come from.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """A published row of the popularity ranker."""

    source: str
    file: str
    protocol: str
    metrics: dict[str, float]
    tolerance: float
    """Relative: how far the draw of negatives, and an unknown tie rule, may move it."""


ROWS = (
    Row(
        "BERT4Rec paper, Table 2",
        "ml-1m/ml-1m.txt.gz",
        "P1",
        {"HR@10": 0.1358, "NDCG@10": 0.0621, "MRR": 0.0627},
        0.05,
    ),
    Row(
        "BERT4Rec paper, Table 2",
        "beauty-paper/beauty.txt.gz",
        "P1",
        {"HR@10": 0.0762, "NDCG@10": 0.0349, "MRR": 0.0437},
        0.08,
    ),
    Row("SASRec paper, Table 3", "ml-1m/ml-1m.txt.gz", "P7", {"HR@10": 0.4329, "NDCG@10": 0.2377}, 0.05),
)


def main() -> int:
    """Check every row. 0: all within their tolerance, 1: one is not, 2: the data is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", type=Path, help="the folder that holds " + ", ".join(sorted({row.file for row in ROWS}))
    )
    folder = parser.parse_args().data
    missing = sorted({str(folder / row.file) for row in ROWS if not (folder / row.file).is_file()})
    if missing:
        sys.stderr.write(
            f"no {' and no '.join(missing)}: these files are no part of the project; put them there, or name their "
            "folder by `make check-protocol DATA=FOLDER` (docs/reference/protocols.md says what they are)\n"
        )
        return 2
    sys.stdout.write(f"{'popularity on':<28}{'':<5}{'':<9}{'published':>10}{'here':>9}{'off by':>9}\n")
    return 0 if all([_check(row, folder) for row in ROWS]) else 1  # noqa: C419 - every row is shown


def _check(row: Row, folder: Path) -> bool:
    command = [sys.executable, "-m", "training.cli", "evaluate", "pop", "--protocol", row.protocol, "--json"]
    answer = subprocess.run([*command, "--data", str(folder / row.file)], stdout=subprocess.PIPE, check=True)  # noqa: S603 - our own command
    measured = json.loads(answer.stdout)["metrics"]
    good = True
    for name, published in row.metrics.items():
        here = measured[name]["value"]
        off = here / published - 1
        within = abs(off) <= row.tolerance
        good &= within
        verdict = "" if within else f"  more than {row.tolerance:.0%} ({row.source})"
        sys.stdout.write(
            f"{row.file:<28}{row.protocol:<5}{name:<9}{published:>10.4f}{here:>9.4f}{off:>+9.1%}{verdict}\n"
        )
    return good


if __name__ == "__main__":
    sys.exit(main())
