"""Business rules on the way of a request: what they need of the model, and lists made by them (service/business_rules).

Every source obeys: model, neighbours and popular items.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from model.contract.columns import Value
from model.contract.query import Answer, Question
from service.api.responses import RankedItem
from service.business_rules.arrangement import Arrangement
from service.business_rules.caps import Cap, read_field
from service.errors import EngineUnavailable, FieldError, Invalid
from service.inference.model import LiveModel
from service.ranking.pending import PendingRequest

_NO_ROWS = FieldError(
    "/diversity", "not_published", "the bundle has no rows to compare items by: publish it with --similar"
)
_NO_METADATA = FieldError(
    "/max_per", "not_published", "the bundle has no metadata: publish it with --items to have fields"
)


def check_published(model: LiveModel, pending: PendingRequest) -> None:
    """Let a request fail that did not so far, if the model's bundle lacks something for its rules."""
    if pending.failure is not None:
        return
    if pending.request.diversity and model.similar is None:
        pending.failure = Invalid([_NO_ROWS])
    elif pending.request.max_per is not None and model.metadata is None:
        pending.failure = Invalid([_NO_METADATA])


def arrange(model: LiveModel, pending: PendingRequest, question: Question) -> Arrangement:
    """The arrangement of a request whose question is `question`. If the items cannot be compared, it is `degraded`."""
    request = pending.request
    cap = request.max_per
    return Arrangement(
        question,
        model.vocabulary,
        boosted=pending.boosted,
        pins=[(pin.rank, model.vocabulary.index_of(pin.item_id)) for pin in request.pins],
        cap=None if cap is None else Cap(cap.count, partial(_read_field, model, pending, cap.field)),
        diversity=request.diversity,
        find_rows=partial(_find_rows, model, pending),
    )


def rank_by_rules(
    model: LiveModel, pending: PendingRequest, question: Question, rank: Callable[[Question], Answer]
) -> Answer:
    """The list of a request by a source that needs no engine."""
    arrangement = arrange(model, pending, question)
    while not arrangement.complete:
        arrangement.take([rank(asked) for asked in arrangement.ask()])
    return arrangement.finish()


def mark_boosted(model: LiveModel, pending: PendingRequest, items: Sequence[RankedItem]) -> None:
    """Say of each item what was added to its score for the order, if anything. Pins stand where they stand."""
    for item in items:
        index = model.vocabulary.index_of(item["item_id"])
        add = next((add for allowed, add in pending.boosted if allowed.mask[index]), 0.0)
        if add and "pinned" not in item:
            item["boost"] = add


def _read_field(model: LiveModel, pending: PendingRequest, field: str, index: int) -> Collection[Value]:
    """The values of an item by its index, as the answer would show them."""
    [item_id] = model.vocabulary.decode([index])
    return read_field(pending.find_metadata(model, item_id), field)


def _find_rows(model: LiveModel, pending: PendingRequest, indexes: NDArray[np.int32]) -> NDArray[np.float32] | None:
    if model.similar is not None:
        try:
            return model.similar.find_rows(indexes)
        except EngineUnavailable:
            pending.degraded = pending.degraded or "engine_unavailable"
    return None
