"""New (cold-start) items: items that a run never saw, added by their features."""

from collections.abc import Mapping

import torch

from model.contract.id_rule import is_valid_id
from model.contract.vocabulary import Vocabulary
from model.nets.new_items import extend
from model.nets.nova import Nova
from training.errors import DataError
from training.runs.networks import make_network
from training.runs.run import Run


def add_items(run: Run, network: Nova, metadata: Mapping[str, Mapping[str, object]]) -> tuple[Nova, Vocabulary]:
    """Add every new item of `metadata` whose features the network can read. Returns the network and all items.

    Returns both unchanged if there is no such item. Raises DataError for an id that breaks the rule.
    """
    new_ids = [item_id for item_id in metadata if item_id not in run.vocabulary]
    for item_id in new_ids:
        if not is_valid_id(item_id):
            raise DataError(f"item {item_id!r:.80} is not 1 to 256 printable ASCII characters without spaces")
    columns = run.read_columns()
    known = [
        item_id
        for item_id in new_ids
        if any(codes for column in columns for codes in column.encode([metadata[item_id].get(column.name)]))
    ]
    if not known:
        return network, run.vocabulary
    vocabulary = Vocabulary.from_items((*run.vocabulary.item_ids, *known))
    larger = make_network(run, vocabulary, {**(run.read_metadata() or {}), **{item: metadata[item] for item in known}})
    assert isinstance(larger, Nova)  # noqa: S101 - as the smaller one is
    positions = torch.from_numpy(vocabulary.encode(run.vocabulary.item_ids)).long()
    return extend(network.cpu(), larger, positions), vocabulary
