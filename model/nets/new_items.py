"""New (cold-start) items: a network for a larger catalogue, whose new rows are made of features.

The map from features to rows was trained by dropping the rows of known items (Volkovs et al., NeurIPS 2017, DropoutNet;
here Nova.embed_features); all that a network knows of old items moves with them to their new indexes.
"""

import torch
from torch import Tensor

from model.contract.vocabulary import PAD
from model.nets.nova import Nova
from model.nets.rules import SequentialRules


@torch.no_grad()
def extend(network: Nova, larger: Nova, positions: Tensor) -> Nova:
    """Fill `larger`, an untrained network for V' items, from a trained one for V. `positions` (V): new indexes.

    New items get rows of their features and the mean bias of the old ones. `larger` knows the features of all.
    """
    state = network.state_dict()
    rows = state.pop("items.weight")
    state.pop("item_bias", None)
    larger.load_state_dict(state, strict=False)
    larger.feature_embeddings = network.feature_embeddings
    every = torch.arange(larger.item_count + 2)
    larger.items.weight.copy_(larger.embed_features(every))
    moved = torch.cat([torch.tensor([PAD]), positions, every[-1:]])  # [mask] stays behind the last item
    larger.items.weight[moved] = rows
    larger.item_bias.fill_(network.item_bias.mean())
    larger.item_bias[positions - 1] = network.item_bias
    if network.rules is not None:
        larger.rules = _extend_rules(network.rules, larger.item_count, moved)
    return larger.eval()


def _extend_rules(rules: SequentialRules, item_count: int, moved: Tensor) -> SequentialRules:
    """The same rules between the same items; a new one has none."""
    extended = SequentialRules(item_count, rules.followers.shape[1])
    extended.followers[moved] = moved[rules.followers.long()].int()
    extended.weights[moved] = rules.weights
    extended.strength.copy_(rules.strength)
    return extended
