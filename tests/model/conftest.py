"""Small networks with weights large enough that answers differ, and layers spelled out."""

import math

import pytest
import torch

from model.contract.sequence import encode_histories
from model.contract.vocabulary import Vocabulary
from model.nets.registry import make_network

torch.set_num_threads(1)  # networks this small are slower on two threads, and far slower on a busy machine


@pytest.fixture(scope="session")
def vocabulary():
    """Sixty items whose ids sort as text, not as numbers."""
    return Vocabulary.from_items(f"i{number}" for number in range(60))


@pytest.fixture(scope="session")
def make_small(vocabulary):
    """A maker of networks by name with a window of twelve, transformers with two layers and heads; keywords switch."""

    def make(name, **switches):
        torch.manual_seed(7)
        layers = {"layers": 2, "heads": 2} if name in {"bert4rec", "sasrec"} else {}
        sizes = {"max_length": 12, "width": 16, **layers, **switches}
        network = make_network(name, item_count=len(vocabulary), user_count=5, **sizes)
        deviation = 0.1 if switches.get("norm") == "none" else 0.4  # without norms nothing bounds the scores
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(std=deviation)
        return network.eval()

    return make


@pytest.fixture(scope="session")
def network(make_small):
    """BERT4Rec as the paper has it."""
    return make_small("bert4rec")


@pytest.fixture(scope="session")
def ask():
    """A function: network, item-index histories and, where it knows them, their users -> scores (B, V)."""

    def ask(network, *histories, users=None):
        given = encode_histories(histories, max_length=network.config.max_length, mask_index=network.item_count + 1)
        with torch.inference_mode():
            return network(*map(torch.from_numpy, given), *([] if users is None else [torch.tensor(users)]))

    return ask


def _norm(x, norm):
    if isinstance(norm, torch.nn.Identity):
        return x
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.pow(2).mean(dim=-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def _attend(x, layer, *, causal):
    """Head by head, query by query."""
    config = layer.config
    size = config.width // config.heads
    q, k, v = (x @ layer.query_key_value.weight.T + layer.query_key_value.bias).split(config.width, dim=1)
    rows = []
    for place in range(len(x)):
        seen = place + 1 if causal else len(x)
        heads = []
        for head in range(config.heads):
            cut = slice(head * size, (head + 1) * size)
            products = k[:seen, cut] @ q[place, cut] / math.sqrt(size)
            if config.positions == "relative":
                distances = [config.max_length - 1 + place - other for other in range(seen)]
                products = products + layer.distance_bias[head, distances]
            weights = torch.softmax(products, dim=0)
            heads.append(weights @ v[:seen, cut])
        rows.append(torch.cat(heads))
    return torch.stack(rows) @ layer.attention_out.weight.T + layer.attention_out.bias


def _feed(x, layer):
    inner = x @ layer.inner.weight.T + layer.inner.bias
    gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    return (gelu if layer.config.activation == "gelu" else inner.clamp(min=0)) @ layer.outer.weight.T + layer.outer.bias


@pytest.fixture(scope="session")
def spell_out():
    """A function: network, embedded tokens (T, D) of one history -> states (T, D), by the papers' equations.

    Without padding and fused attention, every switch in its own line.
    """

    def run(network, x):
        config = network.config
        for layer in network.layers:
            branches = [(lambda x, layer=layer: _attend(x, layer, causal=network.causal), layer.attention_norm)]
            if config.feed_forward:
                branches.append((lambda x, layer=layer: _feed(x, layer), layer.norm))
            for branch, norm in branches:
                y = branch(_norm(x, norm)) if config.norm == "pre" else branch(x)
                x = x + y if config.residual else y
                x = _norm(x, norm) if config.norm == "post" else x
        return _norm(x, network.last_norm) if config.norm == "pre" else x

    return run


@pytest.fixture(
    params=[
        {},
        {"positions": "relative"},
        {"positions": "none"},
        {"norm": "post"},
        {"norm": "pre"},
        {"norm": "none"},
        {"residual": False},
        {"feed_forward": False},
        {"inner_factor": 3},
        {"activation": "relu"},
        {"activation": "gelu"},
        {"layers": 1, "heads": 1},
    ],
    ids=str,
)
def switches(request):
    """Every switch of the ablations, one at a time."""
    return request.param
