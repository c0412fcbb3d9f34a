"""The last layer at some places alone gives what it gives at all of them."""

import pytest
import torch


@pytest.mark.parametrize("switches", [{"norm": "post"}, {"norm": "pre"}, {"positions": "relative"}], ids=str)
@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
@pytest.mark.parametrize("training", [False, True])
def test_some_places_are_those_of_all_places(make_small, name, switches, training):
    """States and all gradients at a few places, one of them twice, equal those of the whole encoding."""
    network = make_small(name, **switches, dropout=0.0).train(training)
    item_ids = torch.tensor([[0, 0, 3, 61, 5], [7, 61, 9, 2, 61], [0, 0, 0, 0, 4]])
    lengths, at = torch.tensor([3, 5, 1]), torch.tensor([[3, 4], [4, 1], [4, 4]])
    some, every = network.encode(item_ids, lengths, at), network.encode(item_ids, lengths)
    picked = torch.stack([row[positions] for row, positions in zip(every, at, strict=True)])
    torch.testing.assert_close(some, picked, atol=1e-5, rtol=1e-4)
    upper = torch.randn_like(some)
    used = {key: weight for key, weight in network.named_parameters() if not key.startswith(("head", "item_bias"))}
    ours = torch.autograd.grad(some, [*used.values()], upper)
    theirs = torch.autograd.grad(picked, [*used.values()], upper)
    for key, mine, whole in zip(used, ours, theirs, strict=True):
        torch.testing.assert_close(mine, whole, atol=1e-3, rtol=1e-3, msg=f"{key}: {{}}".format)


@pytest.mark.parametrize("name", ["gru4rec", "caser-history", "fmc", "cbow", "skip-gram"])
def test_other_networks_know_places_too(make_small, name):
    """Networks without a last layer to spare pick the same states."""
    network = make_small(name)
    item_ids = torch.tensor([[0, 0, 3, 61, 5], [7, 61, 9, 2, 61], [0, 0, 0, 0, 4]])
    lengths, at = torch.tensor([3, 5, 1]), torch.tensor([[3, 4], [4, 1], [4, 4]])
    some, every = network.encode(item_ids, lengths, at), network.encode(item_ids, lengths)
    picked = torch.stack([row[positions] for row, positions in zip(every, at, strict=True)])
    torch.testing.assert_close(some, picked, atol=1e-6, rtol=1e-6)
