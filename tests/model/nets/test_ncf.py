"""NeuMF against its formula, spelled out item by item."""

import pytest
import torch

from model.nets import ncf


@pytest.mark.parametrize("cells", [1, 10**9], ids=["a user at a time", "all at once"])
def test_scores_are_the_papers(make_small, ask, monkeypatch, cells):
    """h^T [p * q ; MLP(p' ; q')] for each item, whatever the history, however many users are asked at once."""
    monkeypatch.setattr(ncf, "_CELLS_AT_ONCE", cells)
    network = make_small("ncf")
    wide = {name: getattr(network, name).weight for name in ("users", "items", "deep_users", "deep_items")}
    found = ask(network, [3, 9], [], [7], users=[4, 0, 2])
    with torch.inference_mode():
        for row, user in zip(found, (4, 0, 2), strict=True):
            for item in (1, 23, 60):
                pair = torch.cat([wide["deep_users"][user], wide["deep_items"][item]])
                first = torch.cat([network.from_user.weight, network.from_item.weight], dim=1) @ pair
                second = (network.inner.weight @ (first + network.from_user.bias).relu() + network.inner.bias).relu()
                score = network.weigh.weight[0] @ torch.cat([wide["users"][user] * wide["items"][item], second])
                assert row[item - 1] == pytest.approx(score.item(), rel=1e-4)
