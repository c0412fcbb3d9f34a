"""The networks by name."""

from model.nets.bert4rec import Bert4Rec, Bert4RecConfig
from model.nets.caser import Caser, CaserConfig, CaserHistory, CaserHistoryConfig
from model.nets.factorization import BprMf, Fmc, Fpmc, TransRec
from model.nets.features import SideInformation
from model.nets.gru4rec import Gru4Rec, Gru4RecConfig
from model.nets.ncf import Ncf
from model.nets.network import Network, NetworkConfig, UserNetwork, UserNetworkConfig
from model.nets.nova import Nova, NovaBert, NovaBertConfig, NovaSasrec, NovaSasrecConfig
from model.nets.sasrec import Sasrec, SasrecConfig
from model.nets.word2vec import Cbow, SkipGram

NETWORKS: dict[str, tuple[type[Network], type[NetworkConfig]]] = {
    "bert4rec": (Bert4Rec, Bert4RecConfig),
    "sasrec": (Sasrec, SasrecConfig),
    "nova-bert": (NovaBert, NovaBertConfig),
    "nova-sasrec": (NovaSasrec, NovaSasrecConfig),
    "gru4rec": (Gru4Rec, Gru4RecConfig),
    "caser": (Caser, CaserConfig),
    "caser-history": (CaserHistory, CaserHistoryConfig),
    "cbow": (Cbow, NetworkConfig),
    "skip-gram": (SkipGram, NetworkConfig),
    "bpr-mf": (BprMf, UserNetworkConfig),
    "ncf": (Ncf, UserNetworkConfig),
    "fmc": (Fmc, NetworkConfig),
    "fpmc": (Fpmc, UserNetworkConfig),
    "transrec": (TransRec, UserNetworkConfig),
}


def make_network(
    name: str,
    *,
    item_count: int,
    user_count: int = 0,
    side: SideInformation | None = None,
    **sizes: object,
) -> Network:
    """An untrained network, drawn from torch's generator; sizes that are None are the paper's.

    `side` is what networks with side information are told (model/nets/nova.py).
    """
    network, config = NETWORKS[name]
    given = {key: value for key, value in sizes.items() if value is not None}
    if issubclass(network, UserNetwork):
        given["user_count"] = user_count
    made = config(item_count=item_count, **given)  # type: ignore[arg-type]  # the config checks its values
    if issubclass(network, Nova):
        return network(made, side or SideInformation())  # type: ignore[arg-type]  # its own config
    return network(made)
