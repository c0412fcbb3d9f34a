"""CBOW and Skip-gram: means of what is shown, and one item of it while training."""

import pytest
import torch


@pytest.mark.parametrize("name", ["cbow", "skip-gram"])
@pytest.mark.parametrize("history", [[], [4], [7, 2, 9, 4, 7]], ids=str)
def test_the_mean_of_the_items_ranks(make_small, ask, name, history):
    """Scores are those of the mean input embedding, repeats counting twice; [mask] stands for nothing at all."""
    network = make_small(name)
    with torch.inference_mode():
        mean = network.items.weight[history or [network.item_count + 1]].mean(dim=0)
        expected = network.outputs.weight[1:-1] @ mean + network.item_bias
    torch.testing.assert_close(ask(network, history)[0], expected, atol=1e-4, rtol=1e-4)


def test_skip_gram_trains_by_one_item_at_a_time(make_small):
    """Every state is the embedding of one shown item of the window, and all of them have their turn."""
    network = make_small("skip-gram").train()
    mask = network.item_count + 1
    states = torch.cat([network.encode(torch.tensor([[0, 5, mask, 8, 6]]), torch.tensor([4]))[0] for _ in range(50)])
    matches = (states[:, None] == network.items.weight[None, [5, 8, 6]]).all(dim=2)
    assert matches.any(dim=1).all()
    assert matches.any(dim=0).all()
