"""The networks by name."""

from model.nets.bert4rec import Bert4Rec, Bert4RecConfig
from model.nets.sasrec import Sasrec, SasrecConfig
from model.nets.transformer import SequenceNetwork, TransformerConfig

_NETWORKS: dict[str, tuple[type[SequenceNetwork], type[TransformerConfig]]] = {
    "bert4rec": (Bert4Rec, Bert4RecConfig),
    "sasrec": (Sasrec, SasrecConfig),
}
NETWORKS = tuple(_NETWORKS)


def make_network(name: str, *, item_count: int, **sizes: object) -> SequenceNetwork:
    """An untrained network, drawn from torch's generator; sizes that are None are the paper's."""
    network, config = _NETWORKS[name]
    given = {key: value for key, value in sizes.items() if value is not None}
    return network(config(item_count=item_count, **given))  # type: ignore[arg-type]  # the config checks its values
