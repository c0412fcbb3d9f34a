"""Scores of some items: what training looks up is what ranking sees."""

from typing import Any

import pytest
import torch

from model.nets.registry import make_network

V, WIDTH = 600, 16


@pytest.fixture
def make():
    """A maker of networks with more items than are scored by the way for one, and fewer than for ten."""

    def make(name):
        torch.manual_seed(3)
        layers: dict[str, Any] = {"heads": 2} if name in {"bert4rec", "sasrec"} else {}
        network = make_network(name, item_count=V, user_count=5, max_length=12, width=WIDTH, **layers)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(std=0.4)
        return network.eval()

    return make


@pytest.mark.parametrize("shape", [(7,), (3, 1), (3, 9), (3, 10)], ids=["shared", "one", "looked-up", "picked"])
@pytest.mark.parametrize("name", ["bert4rec", "sasrec", "bpr-mf", "fmc", "fpmc", "transrec", "ncf"])
def test_columns_are_those_of_all_items(make, name, shape):
    """A row's own items and items shared by all rows score as among all, and teach the same."""
    network = make(name)
    states = torch.randn(3, 3 * WIDTH if name == "ncf" else network.rows.shape[1], requires_grad=True)
    columns = torch.randint(0, V, shape)
    everything = network.score_items(states)
    expected = everything[:, columns] if len(shape) == 1 else everything.gather(1, columns)
    found = network.score_columns(network.read_head(states), columns)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    learns = [states, *(parameter for parameter in network.parameters() if parameter.requires_grad)]
    weights = torch.randn(expected.shape)
    theirs, ours = (
        torch.autograd.grad((scores * weights).sum(), learns, allow_unused=True) for scores in (expected, found)
    )
    for mine, other in zip(ours, theirs, strict=True):
        if other is not None:
            torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)
