"""A recipe: everything that decides how a run goes, from TOML to frozen dataclasses, every key checked by name."""

import difflib
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from model.contract.event_logs.options import CHOICES as LOG_CHOICES
from model.nets.configs import ConfigError
from training.errors import RecipeError
from training.old_names import announce_old_names, rename_keys, rename_recipe
from training.recipe_models import (
    DEFAULT,
    MODELS,
    ModelRecipe,
    NetworkRecipe,
    SequenceRecipe,
    TransformerRecipe,
    require,
)

RECIPES = Path(__file__).parent / "recipes"
DUPLICATES = ("keep", "drop")
DEVICES = ("auto", "cpu", "cuda")
KEEPS = ("best", "last")
EVENT_FEATURES = {"type": "types", "value": "values", "gap": "times"}
"""The event features, and the input of the graph for each."""
SPLITS = ("leave-one-out", "time", "none")
"""none: all events train, as when a model is refitted after it was measured; `fit` refuses it."""
LOSSES = ("softmax", "sampled_softmax", "gbce", "bce", "bpr", "bpr_max", "top1_max")
UNSEEN_NEGATIVES = ("bce", "bpr")
"""Losses that draw negatives for each target, unseen by its user."""
OWN_NEGATIVES = (*UNSEEN_NEGATIVES, "gbce")
"""Losses that draw negatives for each target; the others share theirs in a batch."""
ITEM_INITS = ("random", "ppmi", "vectors")
PRECISIONS = ("auto", "float32", "bfloat16")


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
    time_zone: str = "UTC"
    time_unit: str = "auto"
    ids: str = "plain"
    missing_ids: str = "skip"
    duplicates: str = "keep"
    max_user_events: int | None = None
    min_value: float | None = None
    event_features: tuple[str, ...] = ()
    min_user_events: int = 1
    min_item_events: int = 1
    filter_rounds: int | None = None
    split: str = "leave-one-out"
    held_out_users: int | None = None
    test_share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what no log can be read or cut by."""
        for key, known in (*LOG_CHOICES.items(), ("duplicates", DUPLICATES)):
            require(getattr(self, key) in known, f"data.{key}", f"one of {', '.join(known)}")
        for key in ("min_user_events", "min_item_events"):
            require(getattr(self, key) >= 1, f"data.{key}", "at least 1")
        for key in ("max_user_events", "filter_rounds", "held_out_users"):
            require(getattr(self, key) is None or getattr(self, key) >= 1, f"data.{key}", "at least 1, or absent")
        require(self.split in SPLITS, "data.split", f"one of {', '.join(SPLITS)}")
        distinct = set(self.event_features)
        each_known = distinct <= set(EVENT_FEATURES) and len(distinct) == len(self.event_features)
        require(each_known, "data.event_features", f"a list of {', '.join(EVENT_FEATURES)}, each once")
        timed = "gap" not in self.event_features or bool(self.timestamp_column)
        require(timed, "data.event_features", "without gap where the log has no times")
        require(0 < self.test_share < 0.5, "data.test_share", "above 0 and below 0.5")

    @property
    def filters(self) -> bool:
        """Whether some events are left out on purpose."""
        least = max(self.min_user_events, self.min_item_events)
        return bool(self.event_types) or self.min_value is not None or self.max_user_events is not None or least > 1


@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """[train]: samples, optimizer and when to stop."""

    seed: int = 1
    item_init: str = "random"
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
    gbce_t: float = 0.75
    score_penalty: float = 1.0
    mask_probability: float = 0.2
    mask_count: int | None = None
    max_masks: int | None = None
    last_item_share: float = 0.1
    crop_probability: float = 0.0
    window_stride: int | None = None
    mask_copies: int = 1

    def __post_init__(self) -> None:
        """Refuse values outside their ranges."""
        require(self.item_init in ITEM_INITS, "train.item_init", f"one of {', '.join(ITEM_INITS)}")
        require(self.device in DEVICES, "train.device", f"one of {', '.join(DEVICES)}")
        require(self.precision in PRECISIONS, "train.precision", f"one of {', '.join(PRECISIONS)}")
        require(self.loss in LOSSES, "train.loss", f"one of {', '.join(LOSSES)}")
        sampled = self.loss != "softmax"
        require(not sampled or self.negatives is not None, "train.negatives", f"given when train.loss is {self.loss}")
        require(self.keep in KEEPS, "train.keep", f"one of {', '.join(KEEPS)}")
        require(self.seed >= 0, "train.seed", "at least 0")
        for key in ("epochs", "patience", "batch_size", "mask_copies"):
            require(getattr(self, key) >= 1, f"train.{key}", "at least 1")
        for key in ("validation_users", "window_stride", "negatives", "mask_count", "max_masks"):
            require(getattr(self, key) is None or getattr(self, key) >= 1, f"train.{key}", "at least 1, or absent")
        require(self.budget_seconds is None or self.budget_seconds > 0, "train.budget_seconds", "above 0, or absent")
        require(self.learning_rate > 0, "train.learning_rate", "above 0")
        require(self.clip_norm > 0, "train.clip_norm", "above 0")
        require(self.warmup_steps >= 0, "train.warmup_steps", "at least 0")
        for key in ("weight_decay", "score_penalty"):
            require(getattr(self, key) >= 0, f"train.{key}", "at least 0")
        require(0 < self.mask_probability < 1, "train.mask_probability", "above 0 and below 1")
        for key in ("last_item_share", "crop_probability", "gbce_t"):
            require(0 <= getattr(self, key) <= 1, f"train.{key}", "between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole recipe."""

    data: DataRecipe = field(default_factory=DataRecipe)
    model: ModelRecipe = field(default_factory=TransformerRecipe)
    train: TrainRecipe = field(default_factory=TrainRecipe)

    def __post_init__(self) -> None:
        """Refuse windows with gaps, since no item of the log may go untrained, and losses that a model cannot have."""
        if isinstance(self.model, NetworkRecipe):
            step, longest = self.train.window_stride, self.model.max_length
            require(step is None or step <= longest, "train.window_stride", f"at most model.max_length ({longest})")
        if self.model.name == "ncf":
            fitting = tuple(loss for loss in LOSSES if not loss.endswith("softmax"))
            require(
                self.train.loss in fitting, "train.loss", f"one of {', '.join(fitting)} for ncf, which has no table"
            )

    @property
    def rules_per_item(self) -> int | None:
        """The number of sequential rules per item beside the network, if any: only transformers have that key."""
        return self.model.rules_per_item if isinstance(self.model, TransformerRecipe) else None

    @property
    def recent_days(self) -> float | None:
        """How long events count as recent beside the network, if at all: only networks of sequences have that key."""
        return self.model.recent_days if isinstance(self.model, SequenceRecipe) else None

    @property
    def popularity_discount(self) -> float:
        """The discount on popular items: only transformers have that key."""
        return self.model.popularity_discount if isinstance(self.model, TransformerRecipe) else 0.0

    @property
    def name(self) -> str:
        """The name of the model in tables and bundles."""
        counted = {"rules": self.rules_per_item, "recent": self.recent_days}
        return "-".join([self.model.name, *(name for name, size in counted.items() if size is not None)])

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Every key with its value, as JSON holds it."""
        return asdict(self)

    def list_choices(self) -> dict[str, dict[str, Any]]:
        """The keys that do not have their default values: the same for a recipe that knows fewer keys."""
        return {
            section: {
                entry.name: value
                for entry in fields(getattr(self, section))
                if (value := getattr(getattr(self, section), entry.name)) != entry.default
            }
            for section in SECTIONS
        }


SECTIONS = ("data", "model", "train")
MODEL_KEYS = {entry.name for kind in MODELS.values() for entry in fields(kind)}
"""What [model] may hold for one model or another."""


def find_recipe(name: str) -> Path:
    """The file of a recipe by name or path, whether it is there or not. Announces deprecated names."""
    path = Path(name)
    return path if path.suffix or path.is_file() else RECIPES / f"{rename_recipe(name)}.toml"


def read_recipe(name: str, settings: Sequence[str] = ()) -> Recipe:
    """Read a recipe by name or path and apply `section.key=value` settings. Raises RecipeError."""
    path = find_recipe(name)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.toml")))
        raise RecipeError(f"there is no recipe {name!r}: give the path of a .toml file or one of {known}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path} cannot be read as a recipe: {error}") from error
    return make_recipe(document, settings)


def make_recipe(
    document: Mapping[str, Any], settings: Sequence[str] = (), *, announce: bool = True, stored_in: str = ""
) -> Recipe:
    """Check a document {section: {key: value}} with settings over it. Raises RecipeError naming the key.

    Deprecated key names are accepted (training/old_names.py). With `announce` a line on stderr names those that were
    found; `stored_in` is the run that the document is stored in, if any.
    """
    sections: dict[str, dict[str, Any]] = {}
    old_names: dict[str, str] = {}
    for section, entries in document.items():
        _find(section, SECTIONS, "section")
        if not isinstance(entries, Mapping):
            raise RecipeError(f"{section} must be a section [{section}] of keys")
        sections[section] = rename_keys(section, entries, old_names)
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot):
            raise RecipeError(f"--set needs section.key=value, not {setting!r}")
        _find(section, SECTIONS, "section")
        sections.setdefault(section, {}).update(rename_keys(section, {key: parse_value(text.strip())}, old_names))
    if announce:
        announce_old_names(old_names, stored_in)
    checked: dict[str, Any] = {name: _check_section(name, entries) for name, entries in sections.items()}
    return Recipe(**checked)


def parse_value(text: str) -> object:
    """A TOML value, a number without its 0 (.5), `null` for an absent one, or else the text itself."""
    if text == "null":
        return None
    try:
        return tomllib.loads(f"value = {'0' * text.startswith('.')}{text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _check_section(section: str, entries: Mapping[str, Any]) -> DataRecipe | ModelRecipe | TrainRecipe:
    kind = _choose_kind(section, entries)
    if section == "model":
        entries = {"name": DEFAULT, **entries}
    hints = get_type_hints(kind)
    names = [entry.name for entry in fields(kind)]
    values: dict[str, Any] = {}
    for key, value in entries.items():
        if section == "model" and key in MODEL_KEYS and key not in names:
            raise RecipeError(f"model.{key} does not apply to {entries['name']}; its keys are {', '.join(names)}")
        _find(key, names, "key", prefix=f"{section}.")
        values[key] = _check_value(f"{section}.{key}", hints[key], value)
    try:
        return kind(**values)
    except ConfigError as error:
        raise RecipeError(f"model.{error}") from error


def _choose_kind(section: str, entries: Mapping[str, Any]) -> type[DataRecipe | ModelRecipe | TrainRecipe]:
    if section == "data":
        return DataRecipe
    if section == "train":
        return TrainRecipe
    name = entries.get("name", DEFAULT)
    require(name in MODELS, "model.name", f"one of {', '.join(MODELS)}")
    return MODELS[name]


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
