"""The rewritten network is the network: equal algebra in float64, for every switch, and left alone where unknown."""

import numpy as np
import pytest
import torch

from model.contract.sequence import encode_histories
from model.export.rewrite import LastState, can_rewrite, rewrite


@pytest.fixture(scope="module")
def batch(vocabulary):
    """Forty histories from empty to beyond the window, in one padded batch."""
    draw = np.random.default_rng(5)
    histories = [draw.integers(1, 61, size=size % 20, dtype=np.int32) for size in range(40)]
    rows = encode_histories(histories, max_length=12, mask_index=vocabulary.mask_index)
    return torch.from_numpy(rows.item_ids), torch.from_numpy(rows.lengths)


@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
def test_states_are_the_networks(make_small, switches, name, batch):
    """To the last digits of float64, so that no term is missing, whatever the switches."""
    network = make_small(name, **switches).double()
    with torch.inference_mode():
        expected, got = LastState(network)(*batch), rewrite(network)(*batch)
    assert expected.shape == got.shape == (40, 16)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 3])
def test_any_number_of_layers(make_small, layers, batch):
    """One layer is at [mask] alone; of three, two are at all tokens."""
    network = make_small("sasrec", layers=layers, heads=4).double()
    with torch.inference_mode():
        np.testing.assert_allclose(rewrite(network)(*batch), LastState(network)(*batch), rtol=0, atol=1e-12)


def test_the_network_stays_as_it_is(make_small, batch):
    """Rewriting makes a copy."""
    network = make_small("bert4rec")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    rewrite(network)(*batch)
    assert before.keys() == network.state_dict().keys()
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_what_is_unknown_is_not_rewritten(make_small):
    """Positions inside attention, and layers of another kind, are left to the plain export."""
    assert can_rewrite(make_small("bert4rec"))
    turned = make_small("bert4rec")
    object.__setattr__(turned.config, "positions", "rotary")
    assert not can_rewrite(turned)
    other = make_small("bert4rec")
    other.layers[0] = torch.nn.Identity()
    assert not can_rewrite(other)
    assert rewrite(other).network is other
