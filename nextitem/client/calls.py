"""One function for each route: the request that it sends, and how its answer is read. Events are in recording.py."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from nextitem.client.answers import (
    CatalogueReceipt,
    FoundItems,
    HistoryExport,
    ItemDescription,
    Readiness,
    Receipt,
    Recommendation,
    RecommendationBatch,
    SimilarItems,
)
from nextitem.client.exchange import Call
from nextitem.client.model_answers import ModelDescription, ModelList
from nextitem.client.reader import read
from nextitem.client.requests import (
    DEFAULT_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    ItemChangeRequest,
    ItemPatchRequest,
    ItemRequest,
    RecommendRequest,
    SimilarRequest,
    check_names,
    write_json,
)
from nextitem.client.settings import Limits

T = TypeVar("T")


def recommend(request: RecommendRequest, *, after: Receipt | None, limits: Limits) -> Call[Recommendation]:
    """POST /recommend. The version of the history that `after` names is the least that the answer may come from."""
    prepared = _prepare(request, after)
    return _ask_in_time("/recommend", [prepared], lambda requests: requests[0], Recommendation, limits)


def recommend_batch(
    requests: Iterable[RecommendRequest], *, after: Receipt | None, limits: Limits
) -> Call[RecommendationBatch]:
    """POST /recommend/batch, in one request; the service takes 256."""
    prepared = [_prepare(request, after) for request in requests]
    return _ask_in_time(
        "/recommend/batch", prepared, lambda requests: {"requests": requests}, RecommendationBatch, limits
    )


def find_similar(request: SimilarRequest, *, limits: Limits) -> Call[SimilarItems]:
    """POST /similar."""
    check_names(request.keys(), SimilarRequest)
    prepared: dict[str, Any] = {"timeout_ms": DEFAULT_TIMEOUT_MS, **request}
    return _ask_in_time("/similar", [prepared], lambda requests: requests[0], SimilarItems, limits)


def get_history(user_id: str, *, limits: Limits) -> Call[HistoryExport]:
    """GET /users/{user_id}/history."""
    return _get("/users/{user_id}/history", HistoryExport, limits, path=f"/users/{_quote(user_id)}/history")


def erase(user_id: str, *, limits: Limits) -> Call[None]:
    """DELETE /users/{user_id}. Sent again, it erases what came meanwhile, too: the caller still waits for it."""
    return Call(
        "DELETE",
        "/users/{user_id}",
        read=lambda _content: None,
        limit_s=limits.timeout_s,
        attempt_s=limits.attempt_timeout_s,
        path=f"/users/{_quote(user_id)}",
        accepted=frozenset({204}),
    )


def get_item(item_id: str, *, limits: Limits) -> Call[ItemDescription]:
    """GET /items/{item_id}."""
    return _get("/items/{item_id}", ItemDescription, limits, path=f"/items/{_quote(item_id)}")


def find_items(query: str, *, limit: int, limits: Limits) -> Call[FoundItems]:
    """GET /items."""
    return _get("/items", FoundItems, limits, path=f"/items?{urlencode({'query': query, 'limit': limit})}")


def put_item(item_id: str, item: ItemRequest, *, limits: Limits) -> Call[CatalogueReceipt]:
    """PUT /items/{item_id}."""
    check_names(item.keys(), ItemRequest)
    return _change("PUT", limits, item, item_id=item_id)


def patch_item(item_id: str, item: ItemPatchRequest, *, limits: Limits) -> Call[CatalogueReceipt]:
    """PATCH /items/{item_id}."""
    check_names(item.keys(), ItemPatchRequest)
    return _change("PATCH", limits, item, item_id=item_id)


def delete_item(item_id: str, *, limits: Limits) -> Call[CatalogueReceipt]:
    """DELETE /items/{item_id}. After an answer that was lost, the item may be gone already: NotFound."""
    return _change("DELETE", limits, item_id=item_id)


def change_items(items: Iterable[ItemChangeRequest], *, limits: Limits) -> Call[CatalogueReceipt]:
    """POST /items, in one request; the service takes 1,000."""
    entries = [*items]
    for entry in entries:
        check_names(entry.keys(), ItemChangeRequest)
    return _change("POST", limits, {"items": entries})


def get_model(*, limits: Limits) -> Call[ModelDescription]:
    """GET /model."""
    return _get("/model", ModelDescription, limits)


def get_models(*, limits: Limits) -> Call[ModelList]:
    """GET /models."""
    return _get("/models", ModelList, limits)


def get_readiness(*, limits: Limits) -> Call[Readiness]:
    """GET /health/ready: 503 is an answer, too, and it is what the caller asks for: nothing is repeated."""
    return Call(
        "GET",
        "/health/ready",
        read=lambda content: read(Readiness, content),
        limit_s=limits.attempt_timeout_s,
        attempt_s=limits.attempt_timeout_s,
        accepted=frozenset({200, 503}),
        repeated=False,
    )


def _change(
    method: str, limits: Limits, document: object = None, *, item_id: str | None = None
) -> Call[CatalogueReceipt]:
    """A change of the catalogue: made again, it changes nothing more."""
    body = None if document is None else write_json(document)
    return Call(
        method,
        "/items" if item_id is None else "/items/{item_id}",
        read=lambda content: read(CatalogueReceipt, content),
        limit_s=limits.timeout_s,
        attempt_s=limits.attempt_timeout_s,
        path="" if item_id is None else f"/items/{_quote(item_id)}",
        write=lambda _elapsed_s: body,
    )


def _get(route: str, kind: type[T], limits: Limits, *, path: str = "") -> Call[T]:
    return Call(
        "GET",
        route,
        read=lambda content: read(kind, content),
        limit_s=limits.timeout_s,
        attempt_s=limits.attempt_timeout_s,
        path=path,
    )


def _prepare(request: RecommendRequest, after: Receipt | None) -> dict[str, Any]:
    """The request as it is sent, with its time limit. Raises TypeError for a name that is no field."""
    check_names(request.keys(), RecommendRequest)
    prepared: dict[str, Any] = {"timeout_ms": DEFAULT_TIMEOUT_MS, **request}
    version = after.history.get(prepared.get("user_id", "")) if after else None
    if version is not None and prepared.get("min_history_version") is None:
        prepared["min_history_version"] = version
    return prepared


def _ask_in_time(
    route: str,
    requests: Sequence[dict[str, Any]],
    wrap: Callable[[list[dict[str, Any]]], object],
    kind: type[T],
    limits: Limits,
) -> Call[T]:
    """A call that ends with the longest `timeout_ms` of its requests. Each attempt hands on what is left of it."""
    limit_ms = max((request["timeout_ms"] for request in requests), default=DEFAULT_TIMEOUT_MS)
    limit_s = (limit_ms + limits.network_ms) / 1000

    def write(elapsed_s: float) -> bytes:
        gone_ms = int(elapsed_s * 1000)
        return write_json(wrap([_shorten(request, gone_ms) for request in requests]))

    return Call(
        "POST",
        route,
        read=lambda content: read(kind, content),
        limit_s=limit_s,
        attempt_s=limit_s,
        write=write,
        first_pause_s=0.02,
        least_s=(MIN_TIMEOUT_MS + limits.network_ms) / 1000,
    )


def _shorten(request: dict[str, Any], gone_ms: int) -> dict[str, Any]:
    """The request with what is left of its time. One that was wrong stays so, for the service to say."""
    given = request["timeout_ms"]
    return {**request, "timeout_ms": max(min(MIN_TIMEOUT_MS, given), given - gone_ms)} if gone_ms else request


def _quote(identifier: str) -> str:
    """An id as one part of a path: no slash, and no part that proxies take for a step up."""
    quoted = quote(identifier, safe="")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted
