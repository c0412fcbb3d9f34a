"""The network against its paper: shapes, equations, and what must not matter."""

import pytest
import torch
import torch.nn.functional as F

from model.contract.sequence import encode_histories
from model.nets.bert4rec import Bert4Rec
from model.nets.configs import Bert4RecConfig


@pytest.mark.parametrize("length", [0, 1, 5, 11])
def test_network_is_the_papers_equations(make_small, ask, spell_out, switches, length):
    """Scores equal a head-by-head computation of equations 1 to 7, whatever is switched off or over."""
    network = make_small("bert4rec", **switches)
    config = network.config
    history = list(range(1, length + 1))
    with torch.inference_mode():
        x = network.items.weight[[*history, network.item_count + 1]]
        if config.positions == "learned":
            x = x + network.positions[config.max_length - len(x) :]
        read = F.gelu(network.head(spell_out(network, network.embedding_norm(x))[-1]))
        expected = network.head_norm(read) @ network.items.weight[1:-1].T + network.item_bias
    torch.testing.assert_close(ask(network, history)[0], expected, atol=1e-4, rtol=1e-4)


def test_padding_changes_nothing(network, ask):
    """A history scores alike alone and beside longer ones."""
    short, long = [3, 1, 4], list(range(1, 12))
    together = ask(network, short, long, [])
    for row, history in zip(together, (short, long, []), strict=True):
        torch.testing.assert_close(row, ask(network, history)[0], atol=1e-5, rtol=1e-5)


def test_what_fills_the_padding_is_never_seen(network):
    """Any item in a padded place leaves the scores as they are."""
    item_ids, lengths = encode_histories([[3, 1], list(range(1, 9))], max_length=12, mask_index=61)
    noisy = item_ids.copy()
    noisy[0, : -lengths[0]] = 17
    with torch.inference_mode():
        clean = network(torch.from_numpy(item_ids), torch.from_numpy(lengths))
        dirty = network(torch.from_numpy(noisy), torch.from_numpy(lengths))
    torch.testing.assert_close(clean, dirty)


def test_both_sides_are_seen(network):
    """A masked place in the middle depends on the item after it, which a causal network would not see."""
    mask = network.item_count + 1
    lengths = torch.tensor([3])
    with torch.inference_mode():
        one = network.encode(torch.tensor([[5, mask, 6]]), lengths)[0, 1]
        other = network.encode(torch.tensor([[5, mask, 7]]), lengths)[0, 1]
    assert not torch.allclose(one, other, atol=1e-3)


def test_order_matters(network, ask):
    """The same items in another order score differently: positions are learned."""
    assert not torch.allclose(ask(network, [1, 2, 3]), ask(network, [2, 1, 3]), atol=1e-3)


def test_one_score_for_each_item(network, ask):
    """(B, V): neither PAD nor MASK has a column."""
    assert ask(network, [1], [2, 3]).shape == (2, network.item_count)


def test_weights_start_within_the_papers_bounds():
    """Every weight is drawn from [-0.02, 0.02] and biases are zero."""
    network = Bert4Rec(Bert4RecConfig(width=32), 50)
    for name, parameter in network.named_parameters():
        if parameter.dim() > 1:
            assert 0.015 < parameter.abs().max() <= 0.02 + 1e-6, name
        elif name.endswith("bias"):
            assert not parameter.any(), name


@pytest.mark.parametrize(
    "changes",
    [
        *({"width": 30, "heads": 4}, {"max_length": 1}, {"layers": 0}, {"heads": 0}),
        *({"dropout": 1.0}, {"attention_dropout": -0.1}, {"inner_factor": 0}, {"norm": "both"}, {"positions": "odd"}),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes):
    """A config that no network can have is refused at once."""
    with pytest.raises(ValueError, match=next(iter(changes))):
        Bert4RecConfig(**changes)


def test_a_network_without_items_is_refused():
    """The log decides their number, and it has at least one."""
    with pytest.raises(ValueError, match="item_count must be at least 1"):
        Bert4Rec(Bert4RecConfig(), 0)
