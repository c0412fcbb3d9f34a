"""Deprecated names, which are accepted for one release, and the note that says what to write instead."""

import sys
from collections.abc import Mapping
from typing import Any

from training.errors import RecipeError

OLD_KEYS: Mapping[str, Mapping[str, str]] = {
    "data": {"behaviour": "event_features"},
    "model": {
        "network": "name",
        "tied": "tie_embeddings",
        "rules": "rules_per_item",
        "composed": "feature_embeddings",
        "new_items": "id_dropout",
        "behaviour_dropout": "event_dropout",
        "span": "window",
        "horizontal": "horizontal_filters",
        "vertical": "vertical_filters",
    },
    "train": {
        "start": "item_init",
        "copies": "mask_copies",
        "calibration": "gbce_t",
        "window_step": "window_stride",
        "crop_share": "crop_probability",
    },
}
"""The deprecated name of a key, by section, and its name today. Recipes and stored runs may still use the old ones."""
OLD_RECIPES: Mapping[str, str] = {"demo": "bert4rec-small"}
"""The deprecated name of a shipped recipe, and its name today."""
_announced: set[str] = set()


def rename_keys(section: str, entries: Mapping[str, Any], old_names: dict[str, str]) -> dict[str, Any]:
    """The entries of a section under today's key names. Notes deprecated names in `old_names`. Raises RecipeError."""
    renamed = OLD_KEYS[section]
    for old, new in renamed.items():
        if old in entries:
            if new in entries:
                raise RecipeError(f"{section}.{old} is the old name of {section}.{new}: give {section}.{new} only")
            old_names[f"{section}.{old}"] = f"{section}.{new}"
    return {renamed.get(key, key): value for key, value in entries.items()}


def rename_recipe(name: str) -> str:
    """The name today of a shipped recipe. Announces a deprecated one."""
    if name in OLD_RECIPES:
        announce_old_names({f"recipe {name}": OLD_RECIPES[name]})
    return OLD_RECIPES.get(name, name)


def announce_old_names(names: Mapping[str, str], stored_in: str = "") -> None:
    """Print one line on stderr: the deprecated names in use and their replacements. Each is printed once a process.

    `stored_in` names the run that holds them: stored runs stay readable.
    """
    new = {old: name for old, name in names.items() if old not in _announced}
    if new:
        _announced.update(new)
        pairs = ", ".join(f"{old} is now {name}" for old, name in new.items())
        stored = f"note: {stored_in} holds older names, which stay readable"
        given = "nextitem-train: deprecated names, removed in the next release"
        sys.stderr.write(f"{stored if stored_in else given}: {pairs}\n")
