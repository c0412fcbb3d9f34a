"""From nothing to a published bundle: fetch MovieLens-100K, train, publish. The second time there is little to do."""

import argparse
import functools
import hashlib
import sys
from pathlib import Path

from demo.commands import INTERRUPTED, end_in_order, head, train

RECIPE = Path(__file__).parents[1] / "training" / "recipes" / "demo.toml"
LOG, ITEMS = "interactions.csv", "items.csv"


def main() -> int:
    """Make the bundle and leave; 0 when all went well."""
    parser = argparse.ArgumentParser(prog="python -m demo.bundle", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data, fetched when it is not there")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the training runs")
    parser.add_argument("--bundles", type=Path, required=True, help="folder to publish to")
    arguments = parser.parse_args()
    work = functools.partial(make_bundle, arguments.data, arguments.runs, arguments.bundles)
    return end_in_order(work, interrupted=INTERRUPTED)


def make_bundle(data: Path, runs: Path, bundles: Path) -> Path:
    """Fetch, train and publish. The run's folder. Raises DemoFailed, and KeyboardInterrupt when stopped."""
    # Another recipe is another run: an earlier one is neither resumed nor lost.
    run = runs / f"run-{hashlib.sha256(RECIPE.read_bytes()).hexdigest()[:8]}"
    head(1, "MovieLens-100K")
    train("fetch", "ml-100k", "--out", str(data))
    head(2, "Train BERT4Rec, at most four minutes on two cores")
    train("fit", str(RECIPE), "--data", str(data / LOG), "--out", str(run), "--resume")
    head(3, "Publish the bundle")
    train("publish", str(run), "--out", str(bundles), "--items", str(data / ITEMS))
    return run


if __name__ == "__main__":
    sys.exit(main())
