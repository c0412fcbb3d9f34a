"""What a sweep tries: keys of the recipe, each with some values or a range, as `--try` and presets give them."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, islice, product
from typing import Any, get_args, get_type_hints

from training.errors import InputError, RecipeError
from training.recipe import SECTIONS, DataRecipe, Recipe, TrainRecipe, parse_value
from training.recipe_models import MODELS

Value = None | bool | int | float | str
UNTRIED = {
    "model.rules_per_item": "rules are counted after the training, and trials are compared by the network alone",
    "model.popularity_discount": "it acts after the training: try it with `evaluate --popularity-discount`",
    "train.validation_users": "trials must be asked the same questions",
}
"""Keys that trials cannot be compared by, and why; so are all of [data]."""
_RANGE = re.compile(r"(?P<low>[^:]+?)\.\.(?P<high>[^:]+)(?::(?P<step>.+))?")
_LOGARITHMIC_KEY = "train.learning_rate"
_LOGARITHMIC_RATIO = 10
_MOST_COMBINATIONS = 1000


@dataclass(frozen=True, kw_only=True)
class Values:
    """A key with the values that are tried."""

    key: str
    values: tuple[Value, ...]

    def list_settings(self, value: Value) -> list[str]:
        """What `--set` would be given for one of the values."""
        return [f"{self.key}={format_value(value)}"]

    def describe(self) -> str:
        return ", ".join(map(show_value, self.values))


@dataclass(frozen=True, kw_only=True)
class Variants:
    """Named changes of a recipe, such as the rows of an ablation: the settings of each."""

    key: str
    variants: Mapping[str, Sequence[str]]

    @property
    def values(self) -> tuple[Value, ...]:
        """The names."""
        return tuple(self.variants)

    def list_settings(self, value: Value) -> list[str]:
        """What `--set` would be given for one of the names."""
        return list(self.variants[str(value)])

    def describe(self) -> str:
        return ", ".join(self.variants)


@dataclass(frozen=True, kw_only=True)
class Range:
    """A key with the numbers from `low` to `high`, both among them; whole ones every `step`."""

    key: str
    low: float
    high: float
    whole: bool
    step: int = 1
    logarithmic: bool = False

    @property
    def values(self) -> tuple[Value, ...]:
        """Both ends."""
        return self.low, self.high

    def list_settings(self, value: Value) -> list[str]:
        """What `--set` would be given for one of the numbers."""
        return [f"{self.key}={format_value(value)}"]

    def holds(self, value: object) -> bool:
        """Whether a value is one of the numbers."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        return not self.whole or (value - self.low) % self.step == 0

    def describe(self) -> str:
        step = f" every {self.step}" if self.step > 1 else ""
        scale = ", by the logarithm" if self.logarithmic else ""
        return f"{show_value(self.low)} to {show_value(self.high)}{step}{scale}"


Parameter = Values | Variants | Range


def find_own(parameter: Parameter, recipe: Recipe) -> tuple[Value, ...]:
    """The recipe's own value of a parameter, written as the parameter has it; empty where it is none of its values."""
    section, _, name = parameter.key.partition(".")
    own = recipe.to_dict().get(section, {})
    if name not in own:
        return ()
    if isinstance(parameter, Range):
        return (own[name],) if parameter.holds(own[name]) else ()
    return tuple(value for value in parameter.values if value == own[name])


def format_value(value: Value) -> str:
    """A value as `--set` reads it back."""
    return "null" if value is None else json.dumps(value, ensure_ascii=False)


def show_value(value: Value) -> str:
    """A value as tables show it: numbers with four digits, `null` for an absent one."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else format_value(value)


def to_json(parameter: Parameter) -> dict[str, Any]:
    """A parameter for sweep.json, by which a second start of the sweep is compared with the first."""
    return {"kind": type(parameter).__name__.lower(), **asdict(parameter)}


def read_parameter(text: str, recipe: Recipe) -> Parameter:
    """Read `section.key=a,b` or `section.key=low..high[:step]`. Raises InputError; values are checked later."""
    key, equals, values = (part.strip() for part in text.partition("="))
    section, dot, name = key.partition(".")
    if not equals or not values:
        raise InputError(f"--try needs section.key=a,b or section.key=low..high, not {text!r}")
    if not dot:
        near = [f"{own}.{key}" for own in SECTIONS if key in _list_keys(own)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"sections are {', '.join(SECTIONS)}"
        raise InputError(f"--try {text}: a key has its section before it; {hint}")
    if section == "data":
        raise InputError(f"--try {key}: trials must be asked the same questions of the same log; give it with --set")
    if key in UNTRIED:
        raise InputError(f"--try {key}: {UNTRIED[key]}")
    found = _RANGE.fullmatch(values)
    if found:
        return _read_range(key, found, _wants_whole(recipe, section, name))
    return _read_values(key, values)


def _read_values(key: str, text: str) -> Values:
    if "[" in text:
        raise InputError(f"--try {key}: a key that holds a list cannot be tried")
    values = tuple(dict.fromkeys(_read_value(key, part.strip()) for part in text.split(",")))
    if len(values) < 2:
        raise InputError(f"--try {key}={text}: give two values or more, or fix the one with --set")
    return Values(key=key, values=values)


def _read_value(key: str, text: str) -> Value:
    value = parse_value(text) if text else None
    if not text or not isinstance(value, bool | int | float | str | None):
        raise InputError(f"--try {key}: {text!r} is no value")
    return value


def _read_range(key: str, found: re.Match[str], whole: bool | None) -> Range:
    low, high = (_read_number(key, found[end]) for end in ("low", "high"))
    if low >= high:
        raise InputError(f"--try {key}: a range goes from a smaller number to a larger one, not {low} to {high}")
    both_whole = isinstance(low, int) and isinstance(high, int)
    step = 1
    if found["step"] is not None:
        step = int(found["step"]) if found["step"].isdecimal() else 0
        if not both_whole or whole is False or not 1 <= step <= high - low:
            raise InputError(f"--try {key}: a step is a whole number, at most {high - low}, between whole numbers")
        high -= (high - low) % step
    if both_whole and whole is not False:
        logarithmic = step == 1 and 0 < low * _LOGARITHMIC_RATIO <= high
        return Range(key=key, low=low, high=high, whole=True, step=step, logarithmic=logarithmic)
    logarithmic = low > 0 and (key == _LOGARITHMIC_KEY or low * _LOGARITHMIC_RATIO <= high)
    return Range(key=key, low=float(low), high=float(high), whole=False, logarithmic=logarithmic)


def _read_number(key: str, text: str) -> int | float:
    value = parse_value(text.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
        raise InputError(f"--try {key}: {text!r} is no number")
    return value


def _wants_whole(recipe: Recipe, section: str, name: str) -> bool | None:
    """Whether a key takes whole numbers alone; None where the recipe's model does not have it."""
    hint = get_type_hints(type(getattr(recipe, section))).get(name) if section in SECTIONS else None
    return None if hint is None else float not in (hint, *get_args(hint))


def _list_keys(section: str) -> set[str]:
    kinds: dict[str, list[Any]] = {"data": [DataRecipe], "model": list(MODELS.values()), "train": [TrainRecipe]}
    return {entry.name for kind in kinds[section] for entry in fields(kind)}


def list_combinations(space: Sequence[Parameter]) -> list[dict[str, Value]]:
    """All combinations, the last key changing first. Raises InputError where a range has no end of numbers."""
    keys = [parameter.key for parameter in space]
    return [dict(zip(keys, chosen, strict=True)) for chosen in product(*map(_list_all, space))]


def _list_all(parameter: Parameter) -> Sequence[Value]:
    if not isinstance(parameter, Range):
        return parameter.values
    if not parameter.whole:
        raise InputError(f"--try {parameter.key}: a grid wants values, such as {parameter.key}=.1,.2, not a range")
    return range(int(parameter.low), int(parameter.high) + 1, parameter.step)


def count_combinations(space: Sequence[Parameter]) -> int | None:
    """How many different trials there are; None where a range of numbers has no end of them."""
    total = 1
    for parameter in space:
        if isinstance(parameter, Range):
            if not parameter.whole:
                return None
            total *= int(parameter.high - parameter.low) // parameter.step + 1
        else:
            total *= len(parameter.values)
    return total


def check_space(space: Sequence[Parameter], make_recipe: Callable[[Mapping[str, Value]], Recipe]) -> None:
    """Refuse keys named twice and values that no recipe can have, whatever the other keys are. Raises InputError.

    Of a range both ends are checked.
    """
    keys = [parameter.key for parameter in space]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice:
        raise InputError(f"{twice} is tried twice: give all its values in one --try")
    for parameter in space:
        others = [other for other in space if other is not parameter]
        for value in parameter.values:
            fault = _find_fault(parameter.key, value, others, make_recipe)
            if fault is not None:
                raise fault


def _find_fault(
    key: str, value: Value, others: Sequence[Parameter], make_recipe: Callable[[Mapping[str, Value]], Recipe]
) -> RecipeError | None:
    """Why no recipe has this value: with the recipe's own values of the other keys, or with any that are tried."""
    names = [other.key for other in others]
    tried = (dict(zip(names, chosen, strict=True)) for chosen in product(*(other.values for other in others)))
    fault = None
    for rest in chain([{}], islice(tried, _MOST_COMBINATIONS)):
        try:
            make_recipe({**rest, key: value})
        except RecipeError as error:
            fault = fault or error
        else:
            return None
    return fault
