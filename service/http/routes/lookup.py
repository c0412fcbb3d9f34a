"""GET routes for users and their histories, items and the model."""

from typing import Literal

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from model.contract.deployment.document import Deployment
from service.api.model_responses import CandidateDescription, ModelDescription
from service.api.operator_responses import RecentUser, RecentUsers
from service.api.responses import ExportedEvent, FoundItem, FoundItems, HistoryExport, ItemDescription
from service.api.timestamps import format_rfc_3339
from service.auth.audit import audited, users_listed
from service.auth.guard import GuardedRoute, requires_scope
from service.catalogue.live import CatalogueView
from service.errors import Invalid, NotFound, Overloaded, SearchNotReady, StoreUnavailable
from service.http.dependencies import get_service
from service.http.parameters import (
    DEFAULT_FOUND,
    MAX_FOUND,
    MAX_QUERY,
    PathId,
    check_user,
    describe_problems,
    read_count,
    read_search,
    refuse_query,
    write,
)
from service.inference.model import LiveModel
from service.recommend.variant import Variant

CATALOGUE_WAIT_S = 0.25
"""How long a look-up waits for the catalogue's changes."""

router = APIRouter(route_class=GuardedRoute)

RECENT = "recent"
DEFAULT_RECENT, MAX_RECENT = 20, 100


@router.get(
    "/users",
    tags=["users"],
    summary="List the users of the newest events",
    response_model=RecentUsers,
    responses={**describe_problems(Invalid, StoreUnavailable, Overloaded)},
    openapi_extra={
        **requires_scope("admin"),
        "parameters": [
            {
                "name": RECENT,
                "in": "query",
                "description": "number of users to return",
                "schema": {"type": "integer", "minimum": 1, "maximum": MAX_RECENT, "default": DEFAULT_RECENT},
            }
        ],
    },
)
async def list_users(request: Request) -> Response:
    """Users of events that are not archived yet, the newest first. Not all users: the newest events are looked at."""
    limit = read_count(request, RECENT, default=DEFAULT_RECENT, most=MAX_RECENT)
    found = await get_service(request).store.list_recent(limit)
    users_listed(request, len(found))
    users = [RecentUser(user_id=one.user_id, last_event_at=format_rfc_3339(one.accepted_ms)) for one in found]
    took_ms: float = request.scope["state"]["timer"].took_ms()
    return write(RecentUsers(users=users, count=len(users), took_ms=took_ms))


@router.get(
    "/users/{user_id:text}/history",
    tags=["users"],
    summary="Export the remembered history of a user",
    response_model=HistoryExport,
    responses={**describe_problems(Invalid, StoreUnavailable, Overloaded)},
    openapi_extra=requires_scope("admin"),
)
async def get_history(request: Request, user_id: PathId) -> Response:
    """Every remembered event, oldest first; none for an unknown user."""
    refuse_query(request)
    check_user(user_id)
    with audited(request, "export", user_id):
        version, events = await get_service(request).store.export(user_id)
    exported = [
        ExportedEvent(
            event_id=event.event_id,
            item_id=event.item_id,
            type=event.type,
            value=event.value,
            timestamp=event.timestamp_ms,
        )
        for event in events
    ]
    return write(HistoryExport(user_id=user_id, version=version, events=exported))


@router.get(
    "/items",
    tags=["items"],
    summary="Search items by title or id",
    response_model=FoundItems,
    responses={**describe_problems(NotFound, Invalid, SearchNotReady, Overloaded)},
    openapi_extra={
        **requires_scope("recommend"),
        "parameters": [
            {
                "name": "query",
                "in": "query",
                "required": True,
                "description": "an item id or the beginning of one, or part of a title; case, accents and punctuation "
                "make no difference in titles",
                "schema": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY},
            },
            {
                "name": "limit",
                "in": "query",
                "description": "number of items to return",
                "schema": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": DEFAULT_FOUND},
            },
        ],
    },
)
async def find_items(request: Request) -> Response:
    """The item of that id, then those whose title begins with the query, has a word that does, or contains it.

    Last come those whose id begins with it. Among alike ones the most popular is first.
    """
    query, limit = read_search(request)
    service = get_service(request)
    if service.item_search is None:
        raise NotFound("This service does not search items: it was started with --search off.")
    model = service.model
    view = await _see_catalogue(request)
    found = await service.item_search.find(model, query, limit=limit, overlay=view and view.overlay)
    items = [_describe_found(model, item_id, view) for item_id in found.item_ids]
    took_ms: float = request.scope["state"]["timer"].took_ms()
    answer = FoundItems(items=items, count=len(items), more=found.more, took_ms=took_ms)
    if view is not None:
        answer["catalogue"] = {"version": view.version, "behind": view.behind}
    return write(answer)


@router.get(
    "/items/{item_id:text}",
    tags=["items"],
    summary="Describe an item",
    response_model=ItemDescription,
    responses={**describe_problems(NotFound, Invalid, Overloaded)},
    openapi_extra=requires_scope("recommend"),
)
async def get_item(request: Request, item_id: PathId) -> Response:
    """The metadata of an item, and, once the catalogue was changed, whether it is `available` and `recommendable`.

    A new item is recommendable from the next model on that knows it.
    """
    refuse_query(request)
    model = get_service(request).model
    view = await _see_catalogue(request)
    known = _find_metadata(model, item_id, view)
    if known is None:
        raise NotFound("The model in use does not know this item.")
    answer = ItemDescription(item_id=item_id, metadata=orjson.loads(known))
    if view is not None:
        answer["available"] = item_id not in view.overlay.hidden
        answer["recommendable"] = item_id in model.vocabulary
        answer["catalogue"] = {"version": view.version, "behind": view.behind}
    return write(answer)


async def _see_catalogue(request: Request) -> CatalogueView | None:
    """The catalogue as it is now, or as it was last known; None while no item was ever changed."""
    catalogue, since_s = get_service(request).catalogue, request.scope["state"]["timer"].started
    if not catalogue.is_current(since_s):
        await catalogue.follow(since_s, within_s=CATALOGUE_WAIT_S)
    return catalogue.view(since_s)


def _find_metadata(model: LiveModel, item_id: str, view: CatalogueView | None) -> bytes | None:
    of_bundle = model.find_metadata(item_id) if item_id in model.vocabulary else None
    return of_bundle if view is None else view.overlay.find_metadata(item_id, of_bundle)


def _describe_found(model: LiveModel, item_id: str, view: CatalogueView | None) -> FoundItem:
    index = model.vocabulary.index_of(item_id)
    rank = int(model.popular.places[index]) + 1 if index > 0 else None
    metadata = orjson.Fragment(_find_metadata(model, item_id, view) or b"{}")  # it may be deleted since it was found
    item = FoundItem(item_id=item_id, metadata=metadata, popularity_rank=rank)
    if view is not None:
        item["available"] = item_id not in view.overlay.hidden
        item["recommendable"] = index > 0
    return item


@router.get(
    "/model",
    tags=["model"],
    summary="Describe the model in use",
    response_model=ModelDescription,
    responses={**describe_problems(Invalid, Overloaded)},
    openapi_extra=requires_scope("recommend"),
)
async def get_model(request: Request) -> Response:
    """Name, version, age and measured quality of the model, the provider that runs it, and what filters may name."""
    refuse_query(request)
    service = get_service(request)
    variants, followed = service.recommender.variants, service.followed
    model = variants.champion.model
    manifest = model.manifest
    return write(
        ModelDescription(
            name=manifest.name,
            version=manifest.version,
            digest=model.digest,
            trained_at=manifest.trained_at,
            last_event_at=manifest.last_event_at,
            provider=model.engine.provider,
            item_count=manifest.item_count,
            max_length=manifest.max_length,
            metrics=dict(manifest.metrics),
            generation=variants.generation,
            follows=followed.follows,
            variant="champion",
            candidate=_describe_candidate(followed.deployment, variants.candidate),
            refused=None if followed.refusal is None else followed.refusal.describe(),
            rankers=variants.rankers,
            filter_fields=_list_filter_fields(model),
        )
    )


def _list_filter_fields(model: LiveModel) -> dict[str, Literal["number", "string"]]:
    columns = {} if model.attributes is None else model.attributes.columns
    return {name: "number" if column.numeric else "string" for name, column in columns.items()}


def _describe_candidate(deployment: Deployment | None, loaded: Variant | None) -> CandidateDescription | None:
    if deployment is None or deployment.candidate is None or deployment.mode == "off":
        return None
    share = deployment.share if deployment.mode == "canary" else None
    in_use = loaded is not None and loaded.version == deployment.candidate and not loaded.monitor.out_of_use
    return CandidateDescription(version=deployment.candidate, mode=deployment.mode, share=share, in_use=in_use)
