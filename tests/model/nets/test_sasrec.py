"""SASRec against its paper, and what [mask] at the end of a history means to it."""

import math

import pytest
import torch


def encode(network, *tokens):
    """States (T, D) of one row without padding."""
    with torch.inference_mode():
        return network.encode(torch.tensor([tokens]), torch.tensor([len(tokens)]))[0]


@pytest.mark.parametrize("length", [0, 1, 5, 11])
def test_network_is_the_papers_equations(make_small, ask, spell_out, switches, length):
    """Scores equal a query-by-query computation of equations 1 to 5, whatever is switched off or over."""
    network = make_small("sasrec", **switches)
    config = network.config
    history = list(range(1, length + 1))
    with torch.inference_mode():
        x = network.items.weight[[network.item_count + 1, *history]] * math.sqrt(config.width)
        if config.positions == "learned":
            x = x + network.positions[config.max_length - len(x) :]
        expected = spell_out(network, x)[-1] @ network.items.weight[1:-1].T
    torch.testing.assert_close(ask(network, history)[0], expected, atol=1e-4, rtol=1e-4)


def test_defaults_are_the_papers(make_small):
    """Pre-LN, ReLU, a feed-forward network of width D; heads are asked for by name."""
    config = make_small("sasrec").config
    assert (config.norm, config.activation, config.inner_factor) == ("pre", "relu", 1)


def test_padding_changes_nothing(make_small, ask):
    """A history scores alike alone and beside longer ones, and nothing becomes NaN in the padding."""
    network = make_small("sasrec")
    short, long = [3, 1, 4], list(range(1, 12))
    together = ask(network, short, long, [])
    for row, history in zip(together, (short, long, []), strict=True):
        torch.testing.assert_close(row, ask(network, history)[0], atol=1e-5, rtol=1e-5)


def test_a_state_is_blind_to_its_own_item_and_what_follows(make_small):
    """Changing an item changes the states after it and none before or at its place."""
    network = make_small("sasrec")
    one, other = encode(network, 5, 8, 6, 2), encode(network, 5, 8, 7, 2)
    torch.testing.assert_close(one[:3], other[:3])
    assert not torch.allclose(one[3], other[3], atol=1e-3)


def test_training_asks_what_serving_asks(make_small, ask):
    """The state that trains the last item of a window gives the scores served after the items before it."""
    network = make_small("sasrec")
    with torch.inference_mode():
        trained = network.score_items(encode(network, 5, 8, 6)[-1])
    torch.testing.assert_close(trained, ask(network, [5, 8])[0])


@pytest.mark.parametrize("positions", ["relative", "none"])
def test_every_place_of_a_window_asks_what_serving_asks(make_small, ask, positions):
    """Without positions that count back from the newest token, that holds for each place of a window."""
    network = make_small("sasrec", positions=positions)
    with torch.inference_mode():
        trained = network.score_items(encode(network, 5, 8, 6))
    for place, row in enumerate(trained):
        torch.testing.assert_close(row, ask(network, [5, 8, 6][:place])[0], atol=1e-5, rtol=1e-5)
