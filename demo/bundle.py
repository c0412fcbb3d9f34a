"""From nothing to a published bundle: fetch MovieLens-100K, train, publish. The second time there is little to do."""

import argparse
import functools
import hashlib
import sys
from pathlib import Path

from demo.commands import INTERRUPTED, end_in_order, head, train

RECIPES = Path(__file__).parents[1] / "training" / "recipes"
TITLES = {"demo": "BERT4Rec", "nova": "NOVA-BERT, with genres and years"}
"""The recipes to choose from, each within four minutes on two cores."""
LOG, ITEMS = "interactions.csv", "items.csv"


def main() -> int:
    """Make the bundle and leave; 0 when all went well."""
    parser = argparse.ArgumentParser(prog="python -m demo.bundle", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data, fetched when it is not there")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the training runs")
    parser.add_argument("--bundles", type=Path, required=True, help="folder to publish to")
    add_recipe(parser)
    arguments = parser.parse_args()
    work = functools.partial(make_bundle, arguments.data, arguments.runs, arguments.bundles, arguments.recipe)
    return end_in_order(work, interrupted=INTERRUPTED)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Let the caller choose what to train."""
    parser.add_argument("--recipe", choices=TITLES, default="demo", help="what to train (default demo)")


def make_bundle(data: Path, runs: Path, bundles: Path, name: str) -> Path:
    """Fetch, train and publish. The run's folder. Raises DemoFailed, and KeyboardInterrupt when stopped."""
    recipe = RECIPES / f"{name}.toml"
    # Another recipe is another run: an earlier one is neither resumed nor lost.
    run = runs / f"run-{hashlib.sha256(recipe.read_bytes()).hexdigest()[:8]}"
    head(1, "MovieLens-100K")
    train("fetch", "ml-100k", "--out", str(data))
    head(2, f"Train {TITLES[name]}, at most four minutes on two cores")
    items = ("--items", str(data / ITEMS))
    train("fit", str(recipe), "--data", str(data / LOG), *items, "--out", str(run), "--resume")
    head(3, "Publish the bundle")
    train("publish", str(run), "--out", str(bundles), *items)
    return run


if __name__ == "__main__":
    sys.exit(main())
