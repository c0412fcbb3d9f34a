"""A recipe: everything that decides how a run goes, from TOML to frozen dataclasses, every key checked by name."""

import difflib
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from training.errors import RecipeError

RECIPES = Path(__file__).parent / "recipes"
FORMATS = ("auto", "csv", "tsv", "parquet", "lines")
DEVICES = ("auto", "cpu", "cuda")
KEEPS = ("best", "last")
SPLITS = ("leave-one-out", "time")
NETWORKS = ("bert4rec", "sasrec")  # said again here, since reading a recipe must not import torch
POSITIONS = ("learned", "relative", "none")
NORMS = ("post", "pre", "none")
ACTIVATIONS = ("gelu", "relu")
LOSSES = ("softmax", "sampled_softmax", "gbce", "bce")
PRECISIONS = ("auto", "float32", "bfloat16")


def _require(holds: bool, key: str, rule: str) -> None:
    if not holds:
        raise RecipeError(f"{key} must be {rule}")


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """[data]: how to read a log, and which of its events train."""

    format: str = "auto"
    user_column: str = "user"
    item_column: str = "item"
    timestamp_column: str = "timestamp"
    type_column: str = "type"
    event_types: tuple[str, ...] = ()
    value_column: str = "value"
    min_value: float | None = None
    min_user_events: int = 1
    min_item_events: int = 1
    filter_rounds: int | None = None
    split: str = "leave-one-out"
    held_out_users: int | None = None
    test_share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what no log can be read or cut by."""
        _require(self.format in FORMATS, "data.format", f"one of {', '.join(FORMATS)}")
        for key in ("min_user_events", "min_item_events"):
            _require(getattr(self, key) >= 1, f"data.{key}", "at least 1")
        _require(self.filter_rounds is None or self.filter_rounds >= 1, "data.filter_rounds", "at least 1, or absent")
        _require(self.split in SPLITS, "data.split", f"one of {', '.join(SPLITS)}")
        _require(
            self.held_out_users is None or self.held_out_users >= 1, "data.held_out_users", "at least 1, or absent"
        )
        _require(0 < self.test_share < 0.5, "data.test_share", "above 0 and below 0.5")

    @property
    def filters(self) -> bool:
        """Whether some events are left out on purpose."""
        least = max(self.min_user_events, self.min_item_events)
        return bool(self.event_types) or self.min_value is not None or least > 1


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """[model]: which network, and its sizes; absent ones are its paper's. The number of items comes from the log."""

    network: str = "bert4rec"
    max_length: int = 200
    width: int = 64
    layers: int = 2
    heads: int = 2
    dropout: float = 0.1
    attention_dropout: float | None = None
    positions: str = "learned"
    norm: str | None = None
    residual: bool = True
    feed_forward: bool = True
    inner_factor: int | None = None
    activation: str | None = None
    rules: int | None = None

    @property
    def name(self) -> str:
        """What tables and bundles call it."""
        return self.network if self.rules is None else f"{self.network}-rules"

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        _require(self.network in NETWORKS, "model.network", f"one of {', '.join(NETWORKS)}")
        _require(self.max_length >= 2, "model.max_length", "at least 2, for one item and [mask]")
        for key in ("width", "layers", "heads"):
            _require(getattr(self, key) >= 1, f"model.{key}", "at least 1")
        _require(self.width % self.heads == 0, "model.width", f"a multiple of model.heads ({self.heads})")
        for key in ("dropout", "attention_dropout"):
            _require(0 <= (getattr(self, key) or 0) < 1, f"model.{key}", "at least 0 and below 1")
        for key in ("inner_factor", "rules"):
            _require(getattr(self, key) is None or getattr(self, key) >= 1, f"model.{key}", "at least 1, or absent")
        _require(self.positions in POSITIONS, "model.positions", f"one of {', '.join(POSITIONS)}")
        for key, known in (("norm", NORMS), ("activation", ACTIVATIONS)):
            _require(getattr(self, key) in (None, *known), f"model.{key}", f"one of {', '.join(known)}, or absent")


@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """[train]: samples, optimizer and when to stop."""

    seed: int = 1
    device: str = "auto"
    precision: str = "auto"
    epochs: int = 200
    budget_seconds: float | None = None
    patience: int = 20
    keep: str = "best"
    validation_users: int | None = None
    batch_size: int = 256
    learning_rate: float = 1e-3
    warmup_steps: int = 100
    weight_decay: float = 0.01
    clip_norm: float = 5.0
    loss: str = "softmax"
    negatives: int | None = None
    calibration: float = 0.75
    mask_probability: float = 0.2
    mask_count: int | None = None
    max_masks: int | None = None
    last_item_share: float = 0.1
    crop_share: float = 0.0
    window_step: int | None = None
    copies: int = 1

    def __post_init__(self) -> None:
        """Refuse values outside their ranges."""
        _require(self.device in DEVICES, "train.device", f"one of {', '.join(DEVICES)}")
        _require(self.precision in PRECISIONS, "train.precision", f"one of {', '.join(PRECISIONS)}")
        _require(self.loss in LOSSES, "train.loss", f"one of {', '.join(LOSSES)}")
        sampled = self.loss != "softmax"
        _require(not sampled or self.negatives is not None, "train.negatives", f"given when train.loss is {self.loss}")
        _require(self.keep in KEEPS, "train.keep", f"one of {', '.join(KEEPS)}")
        _require(self.seed >= 0, "train.seed", "at least 0")
        for key in ("epochs", "patience", "batch_size", "copies"):
            _require(getattr(self, key) >= 1, f"train.{key}", "at least 1")
        for key in ("validation_users", "window_step", "negatives", "mask_count", "max_masks"):
            _require(getattr(self, key) is None or getattr(self, key) >= 1, f"train.{key}", "at least 1, or absent")
        _require(self.budget_seconds is None or self.budget_seconds > 0, "train.budget_seconds", "above 0, or absent")
        _require(self.learning_rate > 0, "train.learning_rate", "above 0")
        _require(self.clip_norm > 0, "train.clip_norm", "above 0")
        _require(self.warmup_steps >= 0, "train.warmup_steps", "at least 0")
        _require(self.weight_decay >= 0, "train.weight_decay", "at least 0")
        _require(0 < self.mask_probability < 1, "train.mask_probability", "above 0 and below 1")
        for key in ("last_item_share", "crop_share", "calibration"):
            _require(0 <= getattr(self, key) <= 1, f"train.{key}", "between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole recipe."""

    data: DataRecipe = field(default_factory=DataRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    train: TrainRecipe = field(default_factory=TrainRecipe)

    def __post_init__(self) -> None:
        """Refuse windows with gaps between them: no item of the log may go untrained."""
        step, longest = self.train.window_step, self.model.max_length
        _require(step is None or step <= longest, "train.window_step", f"at most model.max_length ({longest})")

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every key with its value, as JSON holds it."""
        return asdict(self)


SECTIONS: dict[str, type[DataRecipe | ModelRecipe | TrainRecipe]] = {
    "data": DataRecipe,
    "model": ModelRecipe,
    "train": TrainRecipe,
}


def read_recipe(name: str, settings: Sequence[str] = ()) -> Recipe:
    """Read a recipe by name or path and apply `section.key=value` settings. Raises RecipeError."""
    path = Path(name)
    if not path.suffix and not path.is_file():
        path = RECIPES / f"{name}.toml"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
        raise RecipeError(f"there is no recipe {name!r}: give the path of a .toml file or one of {known}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path} cannot be read as a recipe: {error}") from error
    return make_recipe(document, settings)


def make_recipe(document: Mapping[str, Any], settings: Sequence[str] = ()) -> Recipe:
    """Check a document {section: {key: value}} with settings over it. Raises RecipeError naming the key."""
    sections: dict[str, dict[str, Any]] = {}
    for section, entries in document.items():
        _find(section, SECTIONS, "section")
        if not isinstance(entries, Mapping):
            raise RecipeError(f"{section} must be a section [{section}] of keys")
        sections[section] = dict(entries)
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot):
            raise RecipeError(f"--set wants section.key=value, not {setting!r}")
        _find(section, SECTIONS, "section")
        sections.setdefault(section, {})[key] = _parse_value(text.strip())
    checked: dict[str, Any] = {name: _check_section(name, entries) for name, entries in sections.items()}
    return Recipe(**checked)


def _parse_value(text: str) -> object:
    """A TOML value, `null` for an absent one, or else the text itself."""
    if text == "null":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _check_section(section: str, entries: Mapping[str, Any]) -> DataRecipe | ModelRecipe | TrainRecipe:
    kind = SECTIONS[section]
    hints = get_type_hints(kind)
    names = [entry.name for entry in fields(kind)]
    values: dict[str, Any] = {}
    for key, value in entries.items():
        _find(key, names, "key", prefix=f"{section}.")
        values[key] = _check_value(f"{section}.{key}", hints[key], value)
    return kind(**values)


def _find(name: str, known: Sequence[str] | Mapping[str, object], noun: str, *, prefix: str = "") -> None:
    if name not in known:
        near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(prefix + match for match in near)}?" if near else f"known: {', '.join(known)}"
        )
        raise RecipeError(f"there is no {noun} {prefix}{name}: {hint}")


def _check_value(key: str, hint: Any, value: object) -> object:  # noqa: ANN401 - a type hint is any object
    if get_origin(hint) in {Union, types.UnionType}:
        if value is None:
            return None
        hint = next(option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is tuple:
        if isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
        raise RecipeError(f"{key} must be a list of strings, not {value!r}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not hint:
        noun = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}[hint]
        raise RecipeError(f"{key} must be {noun}, not {value!r}")
    if isinstance(value, float) and value - value != 0:
        raise RecipeError(f"{key} must be a finite number")
    return value
