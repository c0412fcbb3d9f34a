"""[model]: every model's own keys, so that a key which a model does not know is refused instead of ignored.

Reading a recipe must not import torch: what the networks know by themselves is said here again, and a test compares.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from training.errors import RecipeError

POSITIONS = ("learned", "relative", "none")
NORMS = ("post", "pre", "none")
ACTIVATIONS = ("gelu", "relu")
FUSIONS = ("add", "concat", "gate")
TRAINER_KEYS = ("rules_per_item", "popularity_discount", "categories", "numbers", "buckets")
"""Keys that say what training makes of the log and the items, and are no sizes of a network."""


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


def require(holds: bool, key: str, rule: str) -> None:
    """Refuse a key's value, saying what it must be. Raises RecipeError."""
    if not holds:
        raise RecipeError(f"{key} must be {rule}")


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """Which model."""

    name: str


@dataclass(frozen=True, kw_only=True)
class BaselineRecipe(ModelRecipe):
    """A count-based baseline: it counts the log in one pass, so that no key of [train] applies to it."""


@dataclass(frozen=True, kw_only=True)
class RecentRecipe(BaselineRecipe):
    """Popularity of late."""

    days: float = 7.0

    def __post_init__(self) -> None:
        """Refuse a time that holds nothing."""
        require(self.days > 0, "model.days", "above 0")


@dataclass(frozen=True, kw_only=True)
class RulesBaselineRecipe(BaselineRecipe):
    """Sequential rules."""

    reach: int = 20
    decay: float = 0.7
    window: int = 50

    def __post_init__(self) -> None:
        """Refuse what makes no rules."""
        for key in ("reach", "window"):
            require(getattr(self, key) >= 1, f"model.{key}", "at least 1")
        require(0.5 <= self.decay <= 1, "model.decay", "between 0.5 and 1")


@dataclass(frozen=True, kw_only=True)
class ItemNeighboursRecipe(BaselineRecipe):
    """Item-based nearest neighbours."""

    neighbours: int = 100
    window: int = 5

    def __post_init__(self) -> None:
        """Refuse what has no neighbours."""
        for key in ("neighbours", "window"):
            require(getattr(self, key) >= 1, f"model.{key}", "at least 1")


@dataclass(frozen=True, kw_only=True)
class SessionNeighboursRecipe(ItemNeighboursRecipe):
    """Nearest neighbours among the sessions, which are the users' histories."""

    sessions: int = 5000

    def __post_init__(self) -> None:
        """Refuse what has no neighbours."""
        super().__post_init__()
        require(self.sessions >= self.neighbours, "model.sessions", f"at least model.neighbours ({self.neighbours})")


@dataclass(frozen=True, kw_only=True)
class NetworkRecipe(ModelRecipe):
    """Sizes that all networks have; the number of items comes from the log."""

    max_length: int = 200
    width: int = 64

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        require(self.max_length >= 2, "model.max_length", "at least 2, for one item and [mask]")
        require(self.width >= 1, "model.width", "at least 1")


@dataclass(frozen=True, kw_only=True)
class Gru4RecRecipe(NetworkRecipe):
    """GRU4Rec."""

    layers: int = 1
    dropout: float = 0.1
    tie_embeddings: bool = True

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        super().__post_init__()
        require(self.layers >= 1, "model.layers", "at least 1")
        require(0 <= self.dropout < 1, "model.dropout", "at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class CaserRecipe(NetworkRecipe):
    """Caser."""

    dropout: float = 0.5
    window: int = 5
    horizontal_filters: int = 16
    vertical_filters: int = 4

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        super().__post_init__()
        for key in ("window", "horizontal_filters", "vertical_filters"):
            require(getattr(self, key) >= 1, f"model.{key}", "at least 1")
        require(0 <= self.dropout < 1, "model.dropout", "at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class TransformerRecipe(NetworkRecipe):
    """BERT4Rec and SASRec; sizes that are absent are as in the network's paper."""

    name: str = "bert4rec"
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
    tie_embeddings: bool = True
    rules_per_item: int | None = None
    popularity_discount: float = 0.0

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        super().__post_init__()
        for key in ("layers", "heads"):
            require(getattr(self, key) >= 1, f"model.{key}", "at least 1")
        require(self.width % self.heads == 0, "model.width", f"a multiple of model.heads ({self.heads})")
        for key in ("dropout", "attention_dropout"):
            require(0 <= (getattr(self, key) or 0) < 1, f"model.{key}", "at least 0 and below 1")
        for key in ("inner_factor", "rules_per_item"):
            require(getattr(self, key) is None or getattr(self, key) >= 1, f"model.{key}", "at least 1, or absent")
        require(0 <= self.popularity_discount <= 10, "model.popularity_discount", "between 0 and 10")
        require(self.positions in POSITIONS, "model.positions", f"one of {', '.join(POSITIONS)}")
        for key, known in (("norm", NORMS), ("activation", ACTIVATIONS)):
            require(getattr(self, key) in (None, *known), f"model.{key}", f"one of {', '.join(known)}, or absent")


@dataclass(frozen=True, kw_only=True)
class NovaRecipe(TransformerRecipe):
    """NOVA-BERT and its causal twin: what is known of items, and how it is fused with their ids."""

    fusion: str = "gate"
    invasive: bool = False
    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    buckets: int = 10
    event_dropout: float = 0.1
    feature_embeddings: bool = False
    id_dropout: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be fused."""
        super().__post_init__()
        require(self.fusion in FUSIONS, "model.fusion", f"one of {', '.join(FUSIONS)}")
        require(self.buckets >= 2, "model.buckets", "at least 2")
        require(0 <= self.event_dropout <= 1, "model.event_dropout", "between 0 and 1")
        require(0 <= self.id_dropout < 1, "model.id_dropout", "at least 0 and below 1")
        described = bool(self.categories or self.numbers) and self.tie_embeddings
        require(described or not self.id_dropout, "model.id_dropout", "0 without categories or numbers, and untied")
        require(
            described or not self.feature_embeddings,
            "model.feature_embeddings",
            "false without categories or numbers, and untied",
        )
        named = (*self.categories, *self.numbers)
        require(len(set(named)) == len(named), "model.categories and model.numbers", "columns named once")


DEFAULT = "bert4rec"
NETWORKS: dict[str, type[NetworkRecipe]] = {
    "bert4rec": TransformerRecipe,
    "sasrec": TransformerRecipe,
    "nova-bert": NovaRecipe,
    "nova-sasrec": NovaRecipe,
    "gru4rec": Gru4RecRecipe,
    "caser": CaserRecipe,
    "caser-history": CaserRecipe,
    "fmc": NetworkRecipe,
    "cbow": NetworkRecipe,
    "skip-gram": NetworkRecipe,
    "bpr-mf": NetworkRecipe,
    "ncf": NetworkRecipe,
    "fpmc": NetworkRecipe,
    "transrec": NetworkRecipe,
}
BASELINES: dict[str, type[BaselineRecipe]] = {
    "pop": BaselineRecipe,
    "recent-pop": RecentRecipe,
    "markov": BaselineRecipe,
    "rules": RulesBaselineRecipe,
    "item-knn": ItemNeighboursRecipe,
    "session-knn": SessionNeighboursRecipe,
}
MODELS: dict[str, type[ModelRecipe]] = {**NETWORKS, **BASELINES}
"""The keys that each model knows, by name."""
