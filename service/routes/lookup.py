"""GET routes that show what is there: a user's history, an item, the model."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from model.contract.vocabulary import is_valid_id
from service.answers import ExportedEvent, HistoryExport, ItemDescription, ModelDescription
from service.errors import Fault, Invalid, NotFound, Overloaded, StoreUnavailable
from service.gate import GuardedRoute, needs
from service.routes.exchange import describe_problems, refuse_query, write
from service.wiring import get_service


class TextConvertor(PathConvertor):
    """Any text, `/` and line ends included: what is no id is to be told so by the route, not to miss it."""

    regex = "(?s:.*)"


register_url_convertor("text", TextConvertor())

router = APIRouter(route_class=GuardedRoute)

PathId = Annotated[str, Path(description="percent-encoded, `/` included")]


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
    if not is_valid_id(user_id):
        raise Invalid(
            [Fault("", "pattern", "the user_id in the path is 1 to 256 printable ASCII characters, no spaces")]
        )
    version, events = await get_service(request).store.export(user_id)
    exported = [
        ExportedEvent(event.event_id, event.item_id, event.type, event.value, event.timestamp_ms) for event in events
    ]
    return write(HistoryExport(user_id, version, exported))


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
    return write(ItemDescription(item_id, metadata))


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
