"""GET routes that show what is there: a user's history, an item, the model."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.answers import ExportedEvent, HistoryExport, ItemDescription, ModelDescription
from service.errors import Invalid, NotFound, Overloaded, StoreUnavailable
from service.gate import GuardedRoute, needs
from service.routes.exchange import PathId, check_user, describe_problems, refuse_query, write
from service.wiring import get_service

router = APIRouter(route_class=GuardedRoute)


@router.get(
    "/users/{user_id:text}/history",
    summary="Export the remembered history of a user",
    response_model=HistoryExport,
    responses={**describe_problems(Invalid, StoreUnavailable, Overloaded)},
    openapi_extra=needs("admin"),
)
async def get_history(request: Request, user_id: PathId) -> Response:
    """Every remembered event, oldest first; none for a user who was never heard of."""
    refuse_query(request)
    check_user(user_id)
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
    "/items/{item_id:text}",
    summary="Describe an item",
    response_model=ItemDescription,
    responses={**describe_problems(NotFound, Invalid, Overloaded)},
    openapi_extra=needs("recommend"),
)
async def get_item(request: Request, item_id: PathId) -> Response:
    """What the bundle knows of an item."""
    refuse_query(request)
    metadata = get_service(request).model.describe_item(item_id)
    if metadata is None:
        raise NotFound("The model in use knows no such item.")
    return write(ItemDescription(item_id=item_id, metadata=metadata))


@router.get(
    "/model",
    summary="Describe the model in use",
    response_model=ModelDescription,
    responses={**describe_problems(Invalid, Overloaded)},
    openapi_extra=needs("recommend"),
)
async def get_model(request: Request) -> Response:
    """Name, version, age, measured quality, and the provider that really runs it."""
    refuse_query(request)
    model = get_service(request).model
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
        )
    )
