"""Recipes as Python has them: a name, a path, or a dictionary of sections; settings as a dictionary of keys."""

import json
import os
from collections.abc import Mapping
from typing import Any

from training.recipe import Recipe, make_recipe, read_recipe


def make(recipe: str | os.PathLike[str] | Mapping[str, Any], settings: Mapping[str, object] | None) -> Recipe:
    """A recipe by name, path or {section: {key: value}}, with settings over it. Raises RecipeError naming the key."""
    if isinstance(recipe, Mapping):
        return make_recipe(recipe, write_settings(settings))
    return read_recipe(os.fspath(recipe), write_settings(settings))


def write_settings(settings: Mapping[str, object] | None) -> list[str]:
    """Settings as `--set` takes them; None makes a key absent."""
    return [f"{key}={_write(value)}" for key, value in (settings or {}).items()]


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
