"""Caser against its paper: filters laid over the last items one place at a time."""

import pytest
import torch

SPAN = 3


def _find(network, tokens):
    """What the filters find in the newest items (equations 3 to 8), older rows of the image being 0."""
    filters, D = network.filters, network.config.width
    rows = [network.items.weight[token] for token in tokens[-SPAN:]]
    image = torch.stack([*[torch.zeros(D)] * (SPAN - len(rows)), *rows])  # (L, D)
    found = []
    for height, across in enumerate(filters.across, 1):
        for weight, bias in zip(across.weight, across.bias, strict=True):  # (D, h)
            values = [(weight.T * image[top : top + height]).sum() + bias for top in range(SPAN - height + 1)]
            found.append(torch.stack(values).clamp(min=0).max())
    down = [
        (filters.down.weight[each, 0] @ image) + filters.down.bias[each]
        for each in range(network.config.vertical_filters)
    ]
    found += list(torch.stack(down, dim=1).flatten())  # by dimension, then by filter
    return (filters.join.weight @ torch.stack(found) + filters.join.bias).clamp(min=0)


@pytest.mark.parametrize("history", [[], [4], [7, 2, 9, 4, 7]], ids=str)
@pytest.mark.parametrize("name", ["caser", "caser-history"])
def test_network_is_the_papers_equations(make_small, ask, name, history):
    """Scores equal filters laid by hand over the last items, the user's embedding beside them where there is one."""
    network = make_small(name, window=SPAN, horizontal_filters=2, vertical_filters=3)
    with torch.inference_mode():
        state = _find(network, [network.item_count + 1, *history])
        if name == "caser":
            state = torch.cat([state, network.users.weight[3]])
        expected = network.outputs.weight[1:-1] @ state + network.item_bias
    found = ask(network, history, users=[3]) if name == "caser" else ask(network, history)
    torch.testing.assert_close(found[0], expected, atol=1e-4, rtol=1e-4)


def test_padding_changes_nothing(make_small, ask):
    """A history scores alike alone and beside longer ones."""
    network = make_small("caser-history")
    short, long = [3, 1, 4], list(range(1, 12))
    together = ask(network, short, long, [])
    for row, history in zip(together, (short, long, []), strict=True):
        torch.testing.assert_close(row, ask(network, history)[0], atol=1e-5, rtol=1e-5)
