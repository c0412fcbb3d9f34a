"""A warm start: the same scores before a step, whatever the items' new indexes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from model.contract.vocabulary import Vocabulary
from model.nets.features import SideInformation
from model.nets.network import SequenceNetwork
from model.nets.nova import Nova
from model.nets.registry import make_network
from training.recipe import make_recipe
from training.recipe_models import NetworkRecipe, TransformerRecipe
from training.retrain.warm_start import PERTURB, SHRINK, Source, carry, is_same_network, shrink_and_perturb

OLD = Vocabulary(["b", "c", "d", "e", "f"])
NEW = Vocabulary(["a", "b", "d", "e", "f", "g"])
CARRIED = ["b", "d", "e", "f"]
SIZES = {"max_length": 5, "width": 8, "dropout": 0.0}


def draw(name, vocabulary, seed, **sizes):
    """A network whose every weight is far from 0."""
    torch.manual_seed(seed)
    shape = {"layers": 1, "heads": 2} if name != "gru4rec" else {}
    recipe = make_recipe({"model": {"name": name, **SIZES, **shape, **sizes}})
    assert isinstance(recipe.model, NetworkRecipe)
    network = make_network(name, item_count=len(vocabulary), **recipe.model.sizes)
    assert isinstance(network, SequenceNetwork)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_()
    return network.eval()


def score(network, vocabulary, history):
    """Scores by item id."""
    row = [*vocabulary.encode(history).tolist(), vocabulary.mask_index]
    with torch.no_grad():
        scores = network(torch.tensor([[0, *row]]), torch.tensor([len(row)]))[0]
    return dict(zip(vocabulary.item_ids, scores.tolist(), strict=True))


def relate(*pairs):
    """How near items are, both ways."""
    matrix = np.zeros((len(NEW), len(NEW)))
    for one, other, value in pairs:
        i, j = NEW.index_of(one) - 1, NEW.index_of(other) - 1
        matrix[i, j] = matrix[j, i] = value
    return sparse.csr_array(matrix)


EVERYTHING = np.ones(len(OLD), dtype=bool)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("bert4rec", {}), ("bert4rec", {"tie_embeddings": False}), ("sasrec", {"positions": "relative"}), ("gru4rec", {})],
)
def test_carried_items_score_the_same(name, sizes):
    """Copied by index, every row would be another item's."""
    source, network = draw(name, OLD, 1, **sizes), draw(name, NEW, 2, **sizes)
    counts = carry(network, NEW, Source(source, OLD, EVERYTHING), relate(("a", "b", 1.0)))
    for history in (["b"], ["f", "d"], ["e", "b", "d"]):
        wanted, found = score(source, OLD, history), score(network, NEW, history)
        assert [found[item] for item in CARRIED] == pytest.approx([wanted[item] for item in CARRIED], abs=1e-4)
    assert (counts.carried, counts.placed, counts.drawn, counts.gone) == (4, 1, 1, 1)


def test_new_item_stands_among_those_it_is_near():
    """By how near they are, and as long a row as others; one near nothing known keeps its row, with a middling bias."""
    source, network = draw("bert4rec", OLD, 1), draw("bert4rec", NEW, 2)
    drawn = network.items.weight[NEW.index_of("g")].clone()
    carry(network, NEW, Source(source, OLD, EVERYTHING), relate(("a", "b", 3.0), ("a", "d", 1.0), ("a", "g", 9.0)))
    rows, old_rows = network.items.weight, source.items.weight
    wanted = 3 * old_rows[OLD.index_of("b")] + old_rows[OLD.index_of("d")]
    length = old_rows[torch.from_numpy(OLD.encode(CARRIED)).long()].norm(dim=1).median()
    assert torch.allclose(rows[NEW.index_of("a")], wanted * length / wanted.norm(), atol=1e-6)
    assert torch.equal(rows[NEW.index_of("g")], drawn)
    old_biases = [source.item_bias[OLD.index_of(item) - 1].item() for item in ("b", "d")]
    assert network.item_bias[NEW.index_of("a") - 1].item() == pytest.approx((3 * old_biases[0] + old_biases[1]) / 4)
    biases = source.item_bias[torch.from_numpy(OLD.encode(CARRIED)).long() - 1]
    assert network.item_bias[NEW.index_of("g") - 1].item() == pytest.approx(biases.mean().item(), abs=1e-6)
    assert torch.equal(rows[0], old_rows[0])
    assert torch.equal(rows[-1], old_rows[-1])


def test_item_that_was_never_trained_on_is_new():
    """Its row is what was drawn for it once."""
    source, network = draw("sasrec", OLD, 1), draw("sasrec", NEW, 2)
    trained = EVERYTHING.copy()
    trained[OLD.index_of("b") - 1] = False
    counts = carry(network, NEW, Source(source, OLD, trained), relate(("b", "d", 1.0)))
    found, near = network.items.weight[NEW.index_of("b")], source.items.weight[OLD.index_of("d")]
    assert torch.cosine_similarity(found, near, dim=0).item() == pytest.approx(1.0)
    assert (counts.carried, counts.placed) == (3, 1)


def test_items_by_features_keep_their_features():
    """NOVA with id_dropout makes a new item's row of its features."""

    def make(vocabulary, codes, seed):
        torch.manual_seed(seed)
        recipe = make_recipe(
            {
                "model": {
                    "name": "nova-bert",
                    **SIZES,
                    "layers": 1,
                    "heads": 2,
                    "id_dropout": 0.2,
                    "categories": ["kind"],
                }
            }
        )
        assert isinstance(recipe.model, NetworkRecipe)
        table = torch.tensor([0, *codes, 0])[:, None]
        side = SideInformation(items=[(table, 2)], events={}, type_count=0)
        network = make_network("nova-bert", item_count=len(vocabulary), side=side, **recipe.model.sizes)
        assert isinstance(network, Nova)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_()
        return network.eval()

    source, network = make(OLD, [1, 2, 1, 2, 1], 1), make(NEW, [2, 1, 1, 2, 1, 1], 2)
    carry(network, NEW, Source(source, OLD, EVERYTHING), relate(("a", "b", 1.0)))
    for item in ("a", "g"):
        index = torch.tensor(NEW.index_of(item))
        assert torch.allclose(network.items.weight[index], network.embed_features(index), atol=1e-6)
    wanted, found = score(source, OLD, ["e", "b"]), score(network, NEW, ["e", "b"])
    assert [found[item] for item in CARRIED] == pytest.approx([wanted[item] for item in CARRIED], abs=1e-4)


def test_shrunk_start_lies_between():
    """Matrices are pulled towards fresh ones; gains and biases are as they were."""
    network, fresh = draw("bert4rec", OLD, 1), draw("bert4rec", OLD, 2)
    before = {name: value.clone() for name, value in network.named_parameters()}
    shrink_and_perturb(network, fresh)
    drawn = dict(fresh.named_parameters())
    for name, value in network.named_parameters():
        wanted = SHRINK * before[name] + PERTURB * drawn[name] if value.dim() > 1 else before[name]
        assert torch.allclose(value, wanted, atol=1e-6)


def test_weights_fit_the_same_architecture_only():
    """Dropout and what is added to scores may change; sizes, and the network itself, may not."""
    model = make_recipe({"model": {"name": "sasrec", "width": 16}}).model
    assert isinstance(model, TransformerRecipe)
    assert is_same_network(model, replace(model, dropout=0.5, rules_per_item=10, popularity_discount=1.0))
    assert not is_same_network(model, replace(model, width=32))
    assert not is_same_network(model, make_recipe({"model": {"name": "bert4rec", "width": 16}}).model)
