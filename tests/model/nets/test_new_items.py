"""Items that training never saw get rows of their features, and nothing else of the network changes."""

from typing import Any

import numpy as np
import pytest
import torch

from model.contract.vocabulary import Vocabulary
from model.export.graph import export_network
from model.export.parity import check_parity, make_golden
from model.nets.features import SideInformation
from model.nets.new_items import extend
from model.nets.registry import make_network
from model.nets.rules import SequentialRules

OLD = Vocabulary.from_items(f"i{number:02}" for number in range(0, 40, 2))
ALL = Vocabulary.from_items([*OLD.item_ids, "i07", "i33", "a-first", "z-last"])
PLACES = torch.from_numpy(ALL.encode(OLD.item_ids)).long()
GENRES = 4


def make_side(vocabulary):
    """Each item's genre by its number, none for some."""
    codes = np.zeros((vocabulary.table_size, 1), np.int32)
    for index, item_id in enumerate(vocabulary.item_ids, start=1):
        codes[index] = sum(map(ord, item_id)) % (GENRES + 1)
    return SideInformation(items=[(torch.from_numpy(codes), GENRES)])


@pytest.fixture(params=["nova-bert", "nova-sasrec"])
def networks(request):
    """A trained network for the old items and an untrained one for all."""
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"max_length": 8, "width": 16, "layers": 1, "heads": 2, "id_dropout": 0.2}
    small = make_network(request.param, item_count=len(OLD), side=make_side(OLD), **sizes)
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.normal_(std=0.4)
    return small.eval(), make_network(request.param, item_count=len(ALL), side=make_side(ALL), **sizes)


def score(network, vocabulary, items):
    """Scores by item id after a history."""
    history = torch.tensor([[*vocabulary.encode(items).tolist(), vocabulary.mask_index]])
    with torch.inference_mode():
        scores = network(history, torch.tensor([history.shape[1]]))[0]
    return dict(zip(vocabulary.item_ids, scores.tolist(), strict=True))


def test_old_items_keep_their_scores(networks):
    """Whatever their new indexes, rules included; a new item scores by its features and the mean bias."""
    small, larger = networks
    small.rules = SequentialRules(len(OLD), 2)
    small.rules.followers[3] = torch.tensor([5, 9])
    small.rules.weights[3] = torch.tensor([2.0, 1.0])
    small.rules.strength.fill_(0.5)
    extended = extend(small, larger, PLACES)
    history = [OLD.item_ids[7], OLD.item_ids[2]]
    before, after = score(small, OLD, history), score(extended, ALL, history)
    assert {item: after[item] for item in before} == pytest.approx(before, abs=1e-5)
    assert sorted(before, key=before.get) == sorted(before, key=after.get)
    assert len(set(before.values())) == len(OLD)  # equal scores would prove nothing
    new = ALL.index_of("i33")
    torch.testing.assert_close(extended.items.weight[new], extended.embed_features(torch.tensor([new]))[0])
    assert extended.item_bias[new - 1].item() == pytest.approx(small.item_bias.mean().item())


def test_new_items_are_read_as_well(networks):
    """A history may hold one, and other features of it make other scores."""
    extended = extend(networks[0], networks[1], PLACES)
    assert score(extended, ALL, ["i07"]) != score(extended, ALL, ["i33"])
    assert all(map(np.isfinite, score(extended, ALL, ["i07", "z-last"]).values()))


def test_the_larger_network_exports(networks):
    """Its graph answers as it does."""
    extended = extend(networks[0], networks[1], PLACES)
    histories = [["i07", "i02"], ["a-first"], []]
    check_parity(export_network(extended), make_golden(extended, ALL, histories), ALL, max_length=8)


def test_new_items_of_composed_rows_are_what_is_known_of_them(networks):
    """Old items keep their scores after settling, a new one has the part that features make."""
    small, larger = networks
    for network in networks:
        network.feature_embeddings = True
    before = score(small, OLD, [OLD.item_ids[7]])
    small.settle()
    extended = extend(small, larger, PLACES)
    after = score(extended, ALL, [OLD.item_ids[7]])
    assert {item: after[item] for item in before} == pytest.approx(before, abs=1e-5)
    new = ALL.index_of("i33")
    torch.testing.assert_close(extended.rows[new], extended.embed_features(torch.tensor([new]))[0])


def test_training_ranks_a_share_of_items_by_their_features(networks):
    """About a fifth of the rows, others each time, and gradients reach what makes them; answering, none."""
    small, _ = networks
    assert small.rows is small.items.weight
    small.train()
    torch.manual_seed(1)
    shares = []
    for _ in range(50):
        rows = small.rows
        replaced = (rows != small.items.weight).any(dim=1)
        torch.testing.assert_close(rows[replaced], small.embed_features(torch.arange(len(rows)))[replaced])
        shares.append(replaced.float().mean().item())
    assert 0.1 < np.mean(shares) < 0.3
    small.table.sum().backward()
    assert small.portraits[0].values.weight.grad.abs().sum() > 0
