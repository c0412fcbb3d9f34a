"""Factorised models against their formulas, spelled out item by item."""

import pytest
import torch

from model.nets.network import SequenceNetwork

LAST = 9


def _ask(network, ask, history, user):
    return ask(network, history) if isinstance(network, SequenceNetwork) else ask(network, history, users=[user])


def _formula(name, network, last, user, item):
    """The paper's score of an item for a user after a last item."""
    bias = network.popularity[item - 1] if name == "transrec" else network.item_bias[item - 1]
    read = network.items.weight
    if name == "bpr-mf":
        return network.users.weight[user] @ read[item] + bias
    if name == "fmc":
        return read[last] @ network.outputs.weight[item] + bias
    if name == "fpmc":
        for_users, for_items = network.outputs.weight[item].chunk(2)
        return network.users.weight[user] @ for_users + read[last] @ for_items + bias
    inside = [row / max(1.0, float(row.norm())) for row in (read[last], read[item])]
    moved = inside[0] + network.translation[0] + network.users.weight[user]
    return bias - (moved - inside[1]).pow(2).sum()


@pytest.mark.parametrize("history", [[], [3, LAST]], ids=str)
@pytest.mark.parametrize("name", ["bpr-mf", "fmc", "fpmc", "transrec"])
def test_scores_are_the_papers(make_small, ask, name, history):
    """All items score as the formula says, but for a term that is the same for all of them in TransRec."""
    network = make_small(name)
    last = history[-1] if history else network.item_count + 1
    with torch.inference_mode():
        found = _ask(network, ask, history, 4)[0]
        expected = torch.stack([_formula(name, network, last, 4, item) for item in range(1, len(found) + 1)])
    apart = found - expected
    if name == "transrec":
        apart = apart - apart.mean()
    torch.testing.assert_close(apart, torch.zeros_like(apart), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["bpr-mf", "fmc", "fpmc", "transrec"])
def test_every_place_of_a_window_asks_what_serving_asks(make_small, ask, name):
    """The states that train a window give the scores after the items before each place."""
    network = make_small(name)
    item_ids, lengths = torch.tensor([[0, 0, 5, 8, 6]]), torch.tensor([3])
    users = [] if isinstance(network, SequenceNetwork) else [torch.tensor([2])]
    with torch.inference_mode():
        trained = network.score_items(network.encode(item_ids, lengths, *users))[0, 2:]
    for place, row in enumerate(trained):
        torch.testing.assert_close(row, _ask(network, ask, [5, 8, 6][:place], 2)[0], atol=1e-5, rtol=1e-5)
