"""PUT, PATCH and DELETE /items/{item_id}, and POST /items: changes of the catalogue, known to the next answer."""

from collections.abc import Sequence

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from model.contract.id_rule import is_valid_id
from service.api.catalogue_requests import (
    MAX_CHANGES,
    ItemChangeRequest,
    ItemPatchRequest,
    ItemRequest,
    ItemsRequest,
)
from service.api.responses import CatalogueReceipt
from service.api.validation import Validator, require_array
from service.auth.guard import GuardedRoute, requires_scope
from service.errors import MAX_FIELD_ERRORS, FieldError, Invalid, NotFound, Overloaded, StoreUnavailable
from service.http.body import BATCH_MAX_BYTES, BODY_PROBLEMS, read_object
from service.http.dependencies import get_service
from service.http.parameters import PathId, describe_body, describe_problems, refuse_query, write
from service.store.catalogue import How, ItemChange

router = APIRouter(route_class=GuardedRoute, tags=["items"])

ITEM_MAX_BYTES = 32 * 1024
"""2,048 bytes of metadata take up to 12,288 with every character escaped, and any number of spaces."""

_validate_item, _validate_patch = Validator(ItemRequest), Validator(ItemPatchRequest)
_validate_change = Validator(ItemChangeRequest)
_PROBLEMS = describe_problems(*BODY_PROBLEMS, NotFound, StoreUnavailable, Overloaded)


@router.post(
    "/items",
    summary="Change many items",
    response_model=CatalogueReceipt,
    responses={**describe_problems(*BODY_PROBLEMS, StoreUnavailable, Overloaded)},
    openapi_extra={**requires_scope("catalogue"), **describe_body(ItemsRequest.__name__)},
)
async def change_items(request: Request) -> Response:
    """Change 1 to 1,000 items in one step, or none. What an entry does not give stays as it is."""
    refuse_query(request)
    changes = _read_changes(await read_object(request, max_bytes=BATCH_MAX_BYTES))
    return await _change(request, [(change.item_id, "merge", change) for change in changes])


@router.put(
    "/items/{item_id:text}",
    summary="Say all that there is to say of an item",
    response_model=CatalogueReceipt,
    responses={**describe_problems(*BODY_PROBLEMS, StoreUnavailable, Overloaded)},
    openapi_extra={**requires_scope("catalogue"), **describe_body(ItemRequest.__name__)},
)
async def put_item(request: Request, item_id: PathId) -> Response:
    """Set an item's metadata and availability, of a new item, too. What is not given is as the bundle has it."""
    _check_path(request, item_id)
    change = _validate_item(await read_object(request, max_bytes=ITEM_MAX_BYTES))
    return await _change(request, [(item_id, "put", change)])


@router.patch(
    "/items/{item_id:text}",
    summary="Change an item",
    response_model=CatalogueReceipt,
    responses={**_PROBLEMS},
    openapi_extra={**requires_scope("catalogue"), **describe_body(ItemPatchRequest.__name__)},
)
async def patch_item(request: Request, item_id: PathId) -> Response:
    """Change the metadata or the availability of an item that there is. What is not given stays as it is."""
    _check_path(request, item_id)
    change = _validate_patch(await read_object(request, max_bytes=ITEM_MAX_BYTES))
    return await _change(request, [(item_id, "patch", change)])


@router.delete(
    "/items/{item_id:text}",
    summary="Delete an item",
    response_model=CatalogueReceipt,
    responses={**describe_problems(NotFound, Invalid, StoreUnavailable, Overloaded)},
    openapi_extra=requires_scope("catalogue"),
)
async def delete_item(request: Request, item_id: PathId) -> Response:
    """Hide an item for good: no answer or search has it, whatever bundle comes, until PUT or POST make it anew."""
    _check_path(request, item_id)
    return await _change(request, [(item_id, "delete", None)])


async def _change(request: Request, wanted: Sequence[tuple[str, How, ItemRequest | None]]) -> Response:
    service = get_service(request)
    known = service.model.vocabulary
    changes = [
        ItemChange(
            item_id,
            how,
            item_id in known,
            None if change is None else change.available,
            None if change is None or change.metadata is None else orjson.dumps(change.metadata),
        )
        for item_id, how, change in wanted
    ]
    changed = await service.catalogue_writer.change(changes)
    took_ms: float = request.scope["state"]["timer"].took_ms()
    return write(CatalogueReceipt(changed=changed.items, catalogue_version=changed.version, took_ms=took_ms))


def _check_path(request: Request, item_id: str) -> None:
    refuse_query(request)
    if not is_valid_id(item_id):
        raise Invalid(
            [FieldError("", "pattern", "the item_id in the path is 1 to 256 printable ASCII characters, no spaces")]
        )


def _read_changes(document: dict[str, object]) -> list[ItemChangeRequest]:
    """The entries of the document, all valid and of different items. Raises Invalid."""
    changes: dict[str, ItemChangeRequest] = {}
    field_errors: list[FieldError] = []
    for index, entry in enumerate(require_array(document, "items", most=MAX_CHANGES)):
        try:
            change = _validate_change(entry, under=f"/items/{index}")
        except Invalid as invalid:
            field_errors += invalid.field_errors
        else:
            if change.item_id in changes:
                detail = "names an item that another entry names"
                field_errors.append(FieldError(f"/items/{index}/item_id", "repeated", detail))
            changes[change.item_id] = change
        if len(field_errors) >= MAX_FIELD_ERRORS:
            break
    if field_errors:
        raise Invalid(field_errors)
    return [*changes.values()]
