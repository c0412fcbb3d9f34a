"""Makes the answer to a request: the best source that has one, and what the client is told about it."""

from collections.abc import Sequence

import orjson

from model.contract.query import Answer, Question
from service.api.business_rules import Pin
from service.api.responses import HistoryState, RankedItem, Recommendation, Source
from service.api.timestamps import format_rfc_3339
from service.inference.model import LiveModel
from service.ranking.pending import PendingRequest
from service.ranking.role import Role
from service.ranking.rules import mark_boosted, rank_by_rules
from service.store.records import History


def make_response(model: LiveModel, pending: PendingRequest, role: Role) -> Recommendation | Exception:
    """The answer, from the popular list if the model gave none; the request's exception if it failed."""
    if pending.failure is not None or pending.question is None:
        return pending.failure or RuntimeError("a question was not encoded")
    source, ranking = _rank(model, pending, pending.question)
    named = dict.fromkeys([*(pending.request.items or ()), *(pending.request.candidate_item_ids or ())])
    forced = pending.request.variant is not None or pending.request.ranker != "auto"
    claimant = None if forced else pending.request.user_id  # a forced answer is no trial's
    items: list[RankedItem] = [
        {"item_id": item_id, "score": score, "rank": rank}
        for rank, (item_id, score) in enumerate(zip(*ranking, strict=True), start=1)
    ]
    if pending.request.pins:
        _mark_pinned(items, pending.request.pins)
        named |= dict.fromkeys(pin.item_id for pin in pending.request.pins)
    if pending.request.boosts:
        mark_boosted(model, pending, items)
    if pending.request.return_metadata:
        _add_metadata(model, pending, items, pending.request.return_metadata)
    answer: Recommendation = {
        "recommendation_id": role.make_id(claimant, from_model=source == "model"),
        "user_id": pending.request.user_id,
        "items": items,
        "count": len(ranking.item_ids),
        "requested": pending.request.k,
        "source": source,
        "degraded": pending.degraded,
        "model": {"name": model.manifest.name, "version": model.manifest.version, "variant": role.name},
        "history": None if pending.history is None else _describe_history(pending.history),
        "unknown_item_ids": [item_id for item_id in named if item_id not in model.vocabulary],
        "took_ms": pending.timer.took_ms(),
    }
    if pending.request.filter is not None and pending.allowed is not None:
        answer["allowed"] = pending.allowed.count
    if pending.catalogue is not None:
        answer["catalogue"] = {"version": pending.catalogue.version, "behind": pending.catalogue.behind}
    if pending.request.explain:
        _leave_unexplained(answer)
    return answer


def _leave_unexplained(answer: Recommendation) -> None:
    """Without reasons: unknown yet if the model ranked the items; others owe nothing to single items of a history."""
    for item in answer["items"]:
        item["reasons"] = None if answer["source"] == "model" else []
    answer["explained"] = None if answer["source"] == "model" else 0


def _add_metadata(
    model: LiveModel, pending: PendingRequest, items: Sequence[RankedItem], wanted: bool | Sequence[str]
) -> None:
    """Give each item what is known of it: all its bytes, or fields."""
    for item in items:
        known = pending.find_metadata(model, item["item_id"])
        if isinstance(wanted, bool):
            item["metadata"] = orjson.Fragment(known)
        else:
            fields = orjson.loads(known)
            item["metadata"] = {name: fields[name] for name in wanted if name in fields}


def _rank(model: LiveModel, pending: PendingRequest, question: Question) -> tuple[Source, Answer]:
    """The best available source. Neighbours take a millisecond each, affordable only while the engine is down."""
    if pending.ranking is not None:
        return pending.ranked_by, pending.ranking
    rank = model.rank_popular
    source: Source = "popular"
    engine_failed = pending.degraded == "engine_unavailable" and pending.request.ranker == "auto"
    if engine_failed and len(question.history) and model.neighbours is not None:
        rank, source = model.rank_neighbours, "neighbours"
    return source, rank_by_rules(model, pending, question, rank) if pending.request.ruled else rank(question)


def _mark_pinned(items: Sequence[RankedItem], pins: Sequence[Pin]) -> None:
    """Say which items a pin put there: rules let none of them into the list otherwise."""
    pinned = {pin.item_id for pin in pins}
    for item in items:
        if item["item_id"] in pinned:
            item["pinned"] = True


def _describe_history(history: History) -> HistoryState:
    at_ms = history.last_event_at_ms
    return {
        "version": history.version,
        "length": len(history.item_ids),
        "last_event_at": None if at_ms is None else format_rfc_3339(at_ms),
    }
