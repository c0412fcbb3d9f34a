"""[model]: every model's own keys, so that a key which a model does not know is refused instead of ignored.

Networks' sizes and their rules are those of model/nets/configs.py. Reading a recipe must not import torch.
"""

from dataclasses import dataclass, fields
from typing import Any

from model.nets.configs import (
    CONFIGS,
    Bert4RecConfig,
    CaserConfig,
    Gru4RecConfig,
    NetworkConfig,
    NovaBertConfig,
    NovaConfig,
    NovaSasrecConfig,
    SasrecConfig,
    TransformerConfig,
)
from training.errors import RecipeError


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
class NetworkRecipe(NetworkConfig, ModelRecipe):
    """A network; the number of items comes from the log."""

    @property
    def sizes(self) -> dict[str, Any]:
        """The keys that are the network's own, for `make_network`."""
        return {entry.name: getattr(self, entry.name) for entry in fields(CONFIGS[self.name])}


@dataclass(frozen=True, kw_only=True)
class SequenceRecipe(NetworkRecipe):
    """A network that ranks from a history, whosever it is, and is served."""

    recent_days: float | None = None

    def __post_init__(self) -> None:
        """Refuse a time that holds nothing."""
        super().__post_init__()
        require(self.recent_days is None or self.recent_days > 0, "model.recent_days", "above 0, or absent")


@dataclass(frozen=True, kw_only=True)
class Gru4RecRecipe(Gru4RecConfig, SequenceRecipe):
    """GRU4Rec."""


@dataclass(frozen=True, kw_only=True)
class CaserRecipe(CaserConfig, NetworkRecipe):
    """Caser."""


@dataclass(frozen=True, kw_only=True)
class CaserHistoryRecipe(CaserRecipe, SequenceRecipe):
    """Caser without users."""


@dataclass(frozen=True, kw_only=True)
class TransformerRecipe(TransformerConfig, SequenceRecipe):
    """BERT4Rec and SASRec, and what training makes of the log for them."""

    name: str = "bert4rec"
    rules_per_item: int | None = None
    popularity_discount: float = 0.0

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        super().__post_init__()
        rules = self.rules_per_item
        require(rules is None or rules >= 1, "model.rules_per_item", "at least 1, or absent")
        require(0 <= self.popularity_discount <= 10, "model.popularity_discount", "between 0 and 10")


@dataclass(frozen=True, kw_only=True)
class NovaRecipe(NovaConfig, TransformerRecipe):
    """NOVA-BERT and its causal twin, and the columns that say what is known of items."""

    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    buckets: int = 10

    def __post_init__(self) -> None:
        """Refuse what cannot be fused."""
        super().__post_init__()
        require(self.buckets >= 2, "model.buckets", "at least 2")
        named = (*self.categories, *self.numbers)
        require(bool(named) or not self.id_dropout, "model.id_dropout", "0 without categories or numbers")
        require(
            bool(named) or not self.feature_embeddings,
            "model.feature_embeddings",
            "false without categories or numbers",
        )
        require(len(set(named)) == len(named), "model.categories and model.numbers", "columns named once")


_HISTORIES = {"caser-history": CaserHistoryRecipe, **dict.fromkeys(("fmc", "cbow", "skip-gram"), SequenceRecipe)}
"""Networks of sequences that share their config with networks of users."""
_RECIPES: dict[type[NetworkConfig], type[NetworkRecipe]] = {
    NetworkConfig: NetworkRecipe,
    Gru4RecConfig: Gru4RecRecipe,
    CaserConfig: CaserRecipe,
    Bert4RecConfig: TransformerRecipe,
    SasrecConfig: TransformerRecipe,
    NovaBertConfig: NovaRecipe,
    NovaSasrecConfig: NovaRecipe,
}
DEFAULT = "bert4rec"
NETWORKS = {name: _HISTORIES.get(name, _RECIPES[config]) for name, config in CONFIGS.items()}
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
