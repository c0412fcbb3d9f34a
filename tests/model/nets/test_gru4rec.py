"""GRU4Rec against its paper, and rows that are moved to the left and back."""

import pytest
import torch


def _run(network, tokens):
    """States (T, D) of one history by the paper's equations, a step at a time."""
    x = network.items.weight[tokens]
    for layer in range(network.config.layers):
        w, r, b, c = (getattr(network.gru, f"{name}_l{layer}") for name in NAMES)
        h, states = torch.zeros(network.config.width), []
        for row in x:
            reset_x, update_x, new_x = (w @ row + b).chunk(3)
            reset_h, update_h, new_h = (r @ h + c).chunk(3)
            update, reset = torch.sigmoid(update_x + update_h), torch.sigmoid(reset_x + reset_h)
            h = (1 - update) * torch.tanh(new_x + reset * new_h) + update * h
            states.append(h)
        x = torch.stack(states)
    return x


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@pytest.mark.parametrize("switches", [{}, {"layers": 2}, {"tie_embeddings": False}], ids=str)
@pytest.mark.parametrize("length", [0, 1, 5, 11])
def test_network_is_the_papers_equations(make_small, ask, switches, length):
    """Scores equal gates worked out a step at a time over [mask] and the history."""
    network = make_small("gru4rec", **switches)
    history = list(range(1, length + 1))
    table = network.items.weight if network.config.tie_embeddings else network.outputs.weight
    with torch.inference_mode():
        expected = _run(network, [network.item_count + 1, *history])[-1] @ table[1:-1].T + network.item_bias
    torch.testing.assert_close(ask(network, history)[0], expected, atol=1e-4, rtol=1e-4)


def test_every_place_of_a_window_asks_what_serving_asks(make_small, ask):
    """The state that trains an item gives the scores served after the items before it, alone or beside longer rows."""
    network = make_small("gru4rec")
    item_ids = torch.tensor([[0, 0, 5, 8, 6], [1, 2, 3, 4, 5]])
    with torch.inference_mode():
        trained = network.score_items(network.encode(item_ids, torch.tensor([3, 5])))
    for place in range(3):
        torch.testing.assert_close(trained[0, 2 + place], ask(network, [5, 8, 6][:place])[0], atol=1e-5, rtol=1e-5)


def test_autocast_leaves_the_recurrent_part_alone(make_small):
    """Under bfloat16 it reads and writes float32, as without: on a GPU autocast would run it in float16."""
    network = make_small("gru4rec").eval()
    item_ids, lengths = torch.tensor([[0, 3, 1, 2], [1, 2, 3, 4]]), torch.tensor([3, 4])
    found = []
    network.gru.register_forward_pre_hook(
        lambda _, inputs: found.append((inputs[0].dtype, torch.is_autocast_enabled("cpu")))
    )
    plain = network.encode(item_ids, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = network.encode(item_ids, lengths)
    assert found == [(torch.float32, False)] * 2
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, plain)
