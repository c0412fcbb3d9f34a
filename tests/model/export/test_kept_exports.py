"""What tests take for the same export is the same: whatever the exporter could tell apart has another name."""

import copy

import pytest
import torch

from model.export.gru_operator import use_operators
from model.export.rewrite import LastState, rewrite
from model.nets.rules import SequentialRules
from tests.kept_exports import name_export

NAMES = ("bert4rec", "sasrec", "gru4rec", "caser-history", "cbow", "skip-gram", "fmc", "nova-bert")


@pytest.mark.parametrize("name", NAMES)
def test_the_same_network_has_the_same_name(make_small, name):
    """Made twice it has one name; with any of its weights moved a little, another."""
    network = use_operators(make_small(name))
    first = name_export(rewrite(network))
    assert name_export(rewrite(use_operators(make_small(name)))) == first
    found = {first}
    for number, _ in enumerate(network.parameters()):
        moved = copy.deepcopy(network)
        with torch.no_grad():
            [*moved.parameters()][number].view(-1)[-1] += 1e-6
        found.add(name_export(LastState(moved)))
    assert len(found) == 2 + number


def test_what_is_no_weight_counts_too(make_small):
    """Options, how a network is rewritten, each switch, rules beside it, and tables that are one or merely equal."""
    network = make_small("sasrec")
    names = {name_export(LastState(network)), name_export(LastState(network), 20), name_export(rewrite(network))}
    names |= {name_export(LastState(make_small("sasrec", **more))) for more in ({"heads": 4}, {"activation": "gelu"})}
    network.rules = SequentialRules(network.item_count, 5)
    names.add(name_export(LastState(network)))
    weight = torch.ones(2)
    names |= {name_export([weight, weight]), name_export([weight, weight.clone()])}
    assert len(names) == 8


def test_what_is_unknown_is_never_the_same(make_small):
    """A function that somebody hangs into a network may do anything."""
    network = make_small("fmc")
    network.told = lambda state: state
    assert name_export(LastState(network)) != name_export(LastState(network))
