"""The networks by name."""

from model.nets.bert4rec import Bert4Rec
from model.nets.caser import Caser, CaserHistory
from model.nets.configs import CONFIGS
from model.nets.factorization import BprMf, Fmc, Fpmc, TransRec
from model.nets.features import SideInformation
from model.nets.gru4rec import Gru4Rec
from model.nets.ncf import Ncf
from model.nets.network import Network, UserNetwork
from model.nets.nova import Nova, NovaBert, NovaSasrec
from model.nets.sasrec import Sasrec
from model.nets.word2vec import Cbow, SkipGram

NETWORKS: dict[str, type[Network]] = {
    "bert4rec": Bert4Rec,
    "sasrec": Sasrec,
    "nova-bert": NovaBert,
    "nova-sasrec": NovaSasrec,
    "gru4rec": Gru4Rec,
    "caser": Caser,
    "caser-history": CaserHistory,
    "fmc": Fmc,
    "cbow": Cbow,
    "skip-gram": SkipGram,
    "bpr-mf": BprMf,
    "ncf": Ncf,
    "fpmc": Fpmc,
    "transrec": TransRec,
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

    `side` is what networks with side information are told (model/nets/nova.py). Raises ConfigError for sizes that make
    no network.
    """
    network = NETWORKS[name]
    given = {key: value for key, value in sizes.items() if value is not None}
    config = CONFIGS[name](**given)  # type: ignore[arg-type]  # the config checks its values
    if issubclass(network, Nova):
        return network(config, item_count, side or SideInformation())  # type: ignore[arg-type]  # its own config
    if issubclass(network, UserNetwork):
        return network(config, item_count, user_count)
    return network(config, item_count)
