"""From nothing to a published bundle: fetch MovieLens-100K, train, compare, publish. The second time all is there.

A model that does not beat popularity is neither published nor kept: the next start trains anew.
"""

import argparse
import functools
import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from demo.commands import INTERRUPTED, DemoFailed, console, end_in_order, hold, train
from demo.counters import describe_nearest, measure_leads, show_leads
from demo.phases import Phases

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "training" / "recipes"
TITLES = {"bert4rec-small": "BERT4Rec and rules", "nova": "NOVA-BERT, with genres and years"}
"""The recipes to choose from, each within two minutes on two cores."""
LOG, ITEMS = "interactions.csv", "items.csv"
MADE = "made.json"
"""What the published bundle was made of: while nothing of it changes, the next start makes nothing."""
CHECKED = ("train.budget_seconds=700",)
"""What --check trains: all epochs, on a machine that stalls, too, where the recipe's time would not do."""


def main() -> int:
    """Make the bundle and leave; 0 when all went well."""
    parser = argparse.ArgumentParser(prog="python -m demo.bundle", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data, fetched when it is not there")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the training runs")
    parser.add_argument("--bundles", type=Path, required=True, help="folder to publish to")
    add_recipe(parser)
    arguments = parser.parse_args()
    work = functools.partial(
        make_bundle,
        arguments.data,
        arguments.runs,
        arguments.bundles,
        arguments.recipe,
        Phases(),
        fresh=arguments.fresh,
    )
    return end_in_order(work, interrupted=INTERRUPTED)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add --recipe and --fresh."""
    parser.add_argument(
        "--recipe", choices=TITLES, default="bert4rec-small", help="what to train (default bert4rec-small)"
    )
    parser.add_argument("--fresh", action="store_true", help="train anew, whatever is there")


def make_bundle(
    data: Path, runs: Path, bundles: Path, name: str, phases: Phases, *, fresh: bool, check: bool = False
) -> Path:
    """Fetch, train, compare and publish, unless all of it was done before. Returns the run's folder.

    With `check` it trains all epochs, and a model that is not ahead of every counter fails. Raises DemoFailed, and
    KeyboardInterrupt when stopped.
    """
    recipe = RECIPES / f"{name}.toml"
    # Another recipe is another run: an earlier one is neither resumed nor lost.
    run = runs / f"run-{hashlib.sha256(recipe.read_bytes()).hexdigest()[:8]}"
    maker = {"run": run.name, "code": digest_code()}
    if not fresh and all((data / file).is_file() for file in (LOG, ITEMS)) and is_made(maker, run, runs, bundles):
        phases.begin(f"MovieLens-100K, and {TITLES[name]}: trained and published by an earlier start")
        return run
    phases.begin("MovieLens-100K")
    train("fetch", "ml-100k", "--out", str(data))
    phases.begin(f"Train {TITLES[name]}, at most two minutes on two cores")
    why = "you asked for it" if fresh else find_weakness(run)
    if run.exists() and why:
        console.print(f"The model of an earlier start is dropped and another one trained: {why}.")
        with hold(run / "fit.lock", f"another training is under way in {run}: stop it first, or wait for it"):
            shutil.rmtree(run)
    chosen_by = find_chooser(bundles) if (run / "published.json").is_file() else None
    items = ("--items", str(data / ITEMS))
    changed = [option for setting in CHECKED if check for option in ("--set", setting)]
    train("fit", str(recipe), "--data", str(data / LOG), *items, *changed, "--out", str(run), "--resume")
    weakness = find_weakness(run)
    if weakness:
        raise DemoFailed(
            f"{weakness}. It is not published, and the next start trains anew. Training has a fixed time: a machine "
            "that is busy with something else may leave too little of it"
        )
    phases.begin("Compare it with every model that counts instead of learning")
    compare(run, data / LOG, runs / "counters.png", check=check)
    phases.begin("Publish the bundle")
    if chosen_by:
        console.print(f"It was published before. Since then {chosen_by} has chosen another version, which stays.")
    else:
        # The console compares the model with neighbours and rules; --similar is for POST /similar and for diversity.
        counted = ("--neighbours", str(data / LOG), "--rules", str(data / LOG))
        train("publish", str(run), "--out", str(bundles), *items, *counted, "--similar")
    (runs / MADE).write_text(json.dumps(maker))
    return run


def compare(run: Path, log: Path, picture: Path, *, check: bool) -> None:
    """Show by how much the model is ahead of each counter. Raises DemoFailed with `check` where one is not behind."""
    leads = measure_leads(run, log, picture)
    show_leads(leads)
    if check and leads[0].value <= 0:
        raise DemoFailed(describe_nearest(leads[0]))


def digest_code() -> str:
    """A digest of the code that trains and publishes: after an upgrade another bundle may come of the same recipe."""
    digest = hashlib.sha256()
    for file in sorted(file for room in ("model", "training") for file in (ROOT / room).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_made(maker: Mapping[str, str], run: Path, runs: Path, bundles: Path) -> bool:
    """Whether an earlier start made the bundle of the same recipe by the same code, and all of it is still there."""
    try:
        made = json.loads((runs / MADE).read_text())
        champion = json.loads((bundles / "deployment.json").read_text())["champion"]
    except (OSError, ValueError, KeyError):
        return False
    trained = (run / "results.json").is_file() and not find_weakness(run)
    return bool(made == maker and trained and (bundles / str(champion)).is_dir())


def find_chooser(bundles: Path) -> str | None:
    """Who has chosen the version that answers, where nobody published it: the judge, or a person."""
    deployment = bundles / "deployment.json"
    history = json.loads(deployment.read_text())["history"] if deployment.is_file() else []
    by = str(history[-1]["by"]) if history else "publish"
    return None if by == "publish" else by


def find_weakness(run: Path) -> str | None:
    """Why a finished run is not worth keeping, or None when it is, or is not finished yet."""
    results = run / "results.json"
    if not results.is_file():
        return None
    lead = json.loads(results.read_text()).get("over_popularity")
    if lead is None:
        return "it was never held against popularity"
    if lead["low"] > 0:
        return None
    interval = f"{lead['value']:+.4f} [{lead['low']:+.4f}, {lead['high']:+.4f}]"
    return (
        f"it does not beat popularity beyond chance, its NDCG@10 being {interval} beside that of the most popular films"
    )


if __name__ == "__main__":
    sys.exit(main())
