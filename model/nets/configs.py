"""The networks' sizes and switches, each with its rule. Torch-free, so that a recipe is checked by them as well."""

from dataclasses import dataclass

POSITIONS = ("learned", "relative", "none")
NORMS = ("post", "pre", "none")
ACTIVATIONS = ("gelu", "relu")
FUSIONS = ("add", "concat", "gate")


class ConfigError(ValueError):
    """A size or switch that no network can have. The message begins with its name."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Sizes that all networks have."""

    max_length: int = 200
    width: int = 64

    def __post_init__(self) -> None:
        """Raise ConfigError for sizes that make no network."""
        _require(self.max_length >= 2, "max_length", "at least 2, for one item and [mask]")
        _require_count(self, "width")


@dataclass(frozen=True, kw_only=True)
class Gru4RecConfig(NetworkConfig):
    """One layer was best in the paper; its tables are not tied, those of its later versions are."""

    layers: int = 1
    dropout: float = 0.1
    tie_embeddings: bool = True
    """Whether items that are read and items that are ranked share their embeddings."""

    def __post_init__(self) -> None:
        """Raise ConfigError for sizes that make no network."""
        super().__post_init__()
        _require_count(self, "layers")
        _require_share(self, "dropout")


@dataclass(frozen=True, kw_only=True)
class CaserConfig(NetworkConfig):
    """The paper's choice for MovieLens."""

    dropout: float = 0.5
    window: int = 5
    """L: items that are read."""
    horizontal_filters: int = 16
    """Filters of each height."""
    vertical_filters: int = 4

    def __post_init__(self) -> None:
        """Raise ConfigError for sizes that make no network."""
        super().__post_init__()
        _require_count(self, "window", "horizontal_filters", "vertical_filters")
        _require_share(self, "dropout")


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(NetworkConfig):
    """Sizes and switches of a transformer; the ablations of Sun et al. 2019 (table 5) are switches.

    Where `norm`, `inner_factor` and `activation` are None, the config of the paper decides.
    """

    layers: int = 2
    heads: int = 2
    dropout: float = 0.1
    attention_dropout: float | None = None
    """Of attention weights; None: as `dropout`."""
    relative_time: bool = False
    """Whether each layer and head adds to a query's product with a key a number learned for the time between them."""
    event_dropout: float = 0.1
    """The share of histories trained without what is known of their events, so that answers do without it, too."""
    positions: str = "learned"
    """`relative`: each layer and head adds to a query's product with a key a number learned for their distance."""
    norm: str | None = None
    residual: bool = True
    feed_forward: bool = True
    inner_factor: int | None = None
    """Inner width of the feed-forward network over D."""
    activation: str | None = None
    tie_embeddings: bool = True
    """Whether items that are read and items that are ranked share their embeddings."""

    def __post_init__(self) -> None:
        """Raise ConfigError for sizes that do not fit together and for unknown switches."""
        super().__post_init__()
        _require_count(self, "layers", "heads")
        _require(self.width % self.heads == 0, "width", f"a multiple of heads ({self.heads})")
        _require_share(self, "dropout", "attention_dropout")
        _require(0 <= self.event_dropout <= 1, "event_dropout", "between 0 and 1")
        _require(self.inner_factor is None or self.inner_factor >= 1, "inner_factor", "at least 1, or absent")
        _require(self.positions in POSITIONS, "positions", f"one of {', '.join(POSITIONS)}")
        for key, known in (("norm", NORMS), ("activation", ACTIVATIONS)):
            _require(getattr(self, key) in (None, *known), key, f"one of {', '.join(known)}, or absent")


@dataclass(frozen=True, kw_only=True)
class Bert4RecConfig(TransformerConfig):
    """The paper's smallest network for MovieLens: two post-LN layers of equations 1 to 6."""

    norm: str = "post"
    inner_factor: int = 4
    activation: str = "gelu"


@dataclass(frozen=True, kw_only=True)
class SasrecConfig(TransformerConfig):
    """The paper's network: pre-LN (section III.C), a feed-forward network of width D with ReLU (equation 4)."""

    heads: int = 1
    norm: str = "pre"
    inner_factor: int = 1
    activation: str = "relu"


@dataclass(frozen=True, kw_only=True)
class NovaConfig(TransformerConfig):
    """Switches of the paper's table 4, over those of the network that is given side information."""

    fusion: str = "gate"
    invasive: bool = False
    feature_embeddings: bool = False
    """Whether the row of an item, read and ranked, is its own plus a sum of what is known of it."""
    id_dropout: float = 0.0
    """The share of items that a step ranks by their features alone, so that items without a row of their own can be."""

    def __post_init__(self) -> None:
        """Raise ConfigError for what cannot be fused."""
        super().__post_init__()
        _require(self.fusion in FUSIONS, "fusion", f"one of {', '.join(FUSIONS)}")
        _require_share(self, "id_dropout")
        _require(self.tie_embeddings or not self.id_dropout, "id_dropout", "0 without tie_embeddings")
        _require(
            self.tie_embeddings or not self.feature_embeddings, "feature_embeddings", "false without tie_embeddings"
        )


@dataclass(frozen=True, kw_only=True)
class NovaBertConfig(Bert4RecConfig, NovaConfig):
    """NOVA on BERT4Rec: the paper's own."""


@dataclass(frozen=True, kw_only=True)
class NovaSasrecConfig(SasrecConfig, NovaConfig):
    """NOVA on SASRec: its causal twin."""


PaperConfig = Bert4RecConfig | SasrecConfig
"""A transformer's config in which nothing is left to the paper."""

CONFIGS: dict[str, type[NetworkConfig]] = {
    "bert4rec": Bert4RecConfig,
    "sasrec": SasrecConfig,
    "nova-bert": NovaBertConfig,
    "nova-sasrec": NovaSasrecConfig,
    "gru4rec": Gru4RecConfig,
    "caser": CaserConfig,
    "caser-history": CaserConfig,
    "fmc": NetworkConfig,
    "cbow": NetworkConfig,
    "skip-gram": NetworkConfig,
    "bpr-mf": NetworkConfig,
    "ncf": NetworkConfig,
    "fpmc": NetworkConfig,
    "transrec": NetworkConfig,
}
"""The config of each network, by the network's name."""


def _require(holds: bool, key: str, rule: str) -> None:
    if not holds:
        raise ConfigError(f"{key} must be {rule}")


def _require_count(config: NetworkConfig, *keys: str) -> None:
    for key in keys:
        _require(getattr(config, key) >= 1, key, "at least 1")


def _require_share(config: NetworkConfig, *keys: str) -> None:
    for key in keys:
        _require(0 <= (getattr(config, key) or 0) < 1, key, "at least 0 and below 1")
