"""The champion: its bundle, the run that it was made of, and what the next training takes from both."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from model.contract.bundle import Bundle, read_bundle
from model.contract.deployment.document import Deployment, DeploymentError, read_deployment
from model.contract.manifest import BundleError
from training.errors import InputError, RecipeError
from training.recipe import Recipe, make_recipe, read_recipe
from training.runs.run import Run

PUBLISHED = "published.json"


@dataclass(frozen=True)
class Champion:
    """The version that answers, and its run where that is among the runs."""

    deployment: Deployment
    bundle: Bundle
    run: Run | None

    @property
    def version(self) -> str:
        """Its version."""
        return self.deployment.champion

    @property
    def learned_until_ms(self) -> int | None:
        """The last moment that it can have learned from, if its log had times. The manifest has whole seconds."""
        last = self.bundle.manifest.last_event_at
        return None if last is None else int(datetime.fromisoformat(last).timestamp()) * 1000 + 999

    def read_metadata(self) -> dict[str, dict[str, Any]] | None:
        """What is known of its items: what its run was given, or else what the bundle has."""
        metadata = None if self.run is None else self.run.read_metadata()
        if metadata is None and self.bundle.metadata is not None:
            lines = zip(self.bundle.vocabulary.item_ids, self.bundle.metadata, strict=True)
            metadata = {item_id: json.loads(line) for item_id, line in lines}
        return metadata


def find_champion(root: Path, runs: Path) -> Champion:
    """The champion of a bundle folder. Raises InputError where there is none, or none that can be read."""
    try:
        deployment = read_deployment(root)
        bundle = read_bundle(root / deployment.champion)
    except (BundleError, DeploymentError) as error:
        raise InputError(f"{error}; retrain starts from a champion: publish a first model with publish") from error
    return Champion(deployment, bundle, _find_run(runs, deployment.champion))


def choose_recipe(champion: Champion, name: str | None, settings: tuple[str, ...]) -> Recipe:
    """The recipe of that name, or else the one that the champion was trained by. Raises RecipeError."""
    if name is not None:
        return read_recipe(name, settings)
    if champion.run is None:
        raise RecipeError(
            f"none of the runs is that of {champion.version}: name its recipe with --recipe, or give its folder of runs"
        )
    return make_recipe(champion.run.read_measured_recipe().to_dict(), settings)


def _find_run(runs: Path, version: str) -> Run | None:
    """The run that a version was made of: a run is in `runs`, or in the folder of a retraining there."""
    for depth in ("*", "*/*"):
        for found in sorted(runs.glob(f"{depth}/{PUBLISHED}")):
            run = Run(found.parent)
            if run.exists and version in run.read_versions():
                return run
    return None
