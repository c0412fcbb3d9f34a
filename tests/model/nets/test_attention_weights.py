"""The weights that are shown are those that the networks use."""

import pytest
import torch

from model.contract.sequence import encode_histories
from model.nets import transformer
from model.nets.attention import attend, weigh
from model.nets.network import mark_real

HISTORIES: tuple[list[int], ...] = ([1, 2, 3, 4, 5, 6, 7], [8, 9], [])


@pytest.fixture(params=["bert4rec", "sasrec"])
def shown(request, make_small, switches):
    """A network with one switch of the ablations, a padded input for it, and its weights."""
    network = make_small(request.param, **switches)
    item_ids, lengths = map(
        torch.from_numpy, encode_histories(HISTORIES, max_length=12, mask_index=network.item_count + 1)
    )
    with torch.inference_mode():
        return network, item_ids, lengths, network.weigh(item_ids, lengths)


def test_weights_times_values_are_what_attention_gives():
    """For any q, k, v and any allowed keys, and nothing flows to a key that is not allowed."""
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 5, 2, 9, 4, dtype=torch.float64)
    allowed = (torch.rand(5, 1, 9, 9) < 0.6) | torch.eye(9, dtype=torch.bool)
    weights = weigh(q, k, allowed)
    torch.testing.assert_close(weights @ v, attend(q, k, v, allowed, dropout=0.0))
    assert weights[~allowed.expand_as(weights)].eq(0).all()


def test_weights_that_are_shown_are_the_weights_that_are_used(shown, monkeypatch):
    """The network whose attention is nothing but the shown weights times its values gives the same states."""
    network, item_ids, lengths, weights = shown
    with torch.inference_mode():
        expected = network.encode(item_ids, lengths)
    left = iter(weights)
    monkeypatch.setattr(transformer, "attend", lambda _q, _k, v, *_, **__: next(left) @ v)
    with torch.inference_mode():
        states = network.encode(item_ids, lengths)
    assert next(left, None) is None
    real = mark_real(item_ids, lengths)
    torch.testing.assert_close(states[real], expected[real])


def test_weights_are_shares_of_what_a_token_may_see(shown):
    """Rows sum to 1, padding gets nothing, and in a causal network neither do later tokens."""
    network, item_ids, lengths, weights = shown
    real = mark_real(item_ids, lengths)
    config = network.config
    assert len(weights) == config.layers
    for layer in weights:
        assert layer.shape == (len(HISTORIES), config.heads, 8, 8)
        rows = layer.transpose(1, 2)[real]  # of real tokens: (M, H, T)
        torch.testing.assert_close(rows.sum(dim=-1), torch.ones(rows.shape[:-1]))
        later = torch.ones(8, 8, dtype=torch.bool).triu(1)
        for row, is_real in zip(layer, real, strict=True):
            assert row[:, is_real][:, :, ~is_real].eq(0).all()
            seen_later = row[:, later & is_real[:, None] & is_real]
            assert seen_later.eq(0).all() if network.causal else not is_real.sum() > 1 or seen_later.gt(0).all()


def test_looking_leaves_nothing_behind(make_small):
    """Weights are collected while they are asked for and never after, even when the network fails."""
    network = make_small("bert4rec")
    with pytest.raises(IndexError):
        network.weigh(torch.full((1, 3), 10_000), torch.tensor([3]))
    assert not any(layer._forward_pre_hooks for layer in network.layers)
