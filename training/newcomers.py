"""Items that a run never saw, admitted by what is known of them."""

from collections.abc import Mapping

import torch

from model.contract.vocabulary import Vocabulary, is_valid_id
from model.nets.newcomers import extend
from model.nets.nova import Nova
from training.errors import DataError
from training.run import Run


def admit(run: Run, network: Nova, metadata: Mapping[str, Mapping[str, object]]) -> tuple[Nova, Vocabulary]:
    """The network with every item of `metadata` that it did not know and whose features it can read; and all items.

    Both as they are where there is none. Raises DataError for an id that breaks the rule.
    """
    strangers = [item_id for item_id in metadata if item_id not in run.vocabulary]
    for item_id in strangers:
        if not is_valid_id(item_id):
            raise DataError(f"item {item_id!r:.80} is not 1 to 256 printable ASCII characters without spaces")
    columns = run.read_columns()
    known = [
        item_id
        for item_id in strangers
        if any(codes for column in columns for codes in column.encode([metadata[item_id].get(column.name)]))
    ]
    if not known:
        return network, run.vocabulary
    vocabulary = Vocabulary.from_items((*run.vocabulary.item_ids, *known))
    larger = run.make_network(vocabulary, {**(run.read_metadata() or {}), **{item: metadata[item] for item in known}})
    assert isinstance(larger, Nova)  # noqa: S101 - as the smaller one is
    places = torch.from_numpy(vocabulary.encode(run.vocabulary.item_ids)).long()
    return extend(network.cpu(), larger, places), vocabulary
