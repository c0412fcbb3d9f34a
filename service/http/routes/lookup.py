"""GET routes for a user's history, an item and the model."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from model.contract.deployment.document import Deployment
from service.api.responses import (
    CandidateDescription,
    ExportedEvent,
    HistoryExport,
    ItemDescription,
    ModelDescription,
    RefusedModel,
)
from service.api.timestamps import format_rfc_3339
from service.auth.audit import audited
from service.auth.guard import GuardedRoute, requires_scope
from service.deployment.refusals import Refusal
from service.errors import Invalid, NotFound, Overloaded, StoreUnavailable
from service.http.dependencies import get_service
from service.http.parameters import PathId, check_user, describe_problems, refuse_query, write
from service.recommend.variant import Variant

router = APIRouter(route_class=GuardedRoute)


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
    "/items/{item_id:text}",
    tags=["items"],
    summary="Describe an item",
    response_model=ItemDescription,
    responses={**describe_problems(NotFound, Invalid, Overloaded)},
    openapi_extra=requires_scope("recommend"),
)
async def get_item(request: Request, item_id: PathId) -> Response:
    """The metadata of an item."""
    refuse_query(request)
    metadata = get_service(request).model.describe_item(item_id)
    if metadata is None:
        raise NotFound("The model in use does not know this item.")
    return write(ItemDescription(item_id=item_id, metadata=metadata))


@router.get(
    "/model",
    tags=["model"],
    summary="Describe the model in use",
    response_model=ModelDescription,
    responses={**describe_problems(Invalid, Overloaded)},
    openapi_extra=requires_scope("recommend"),
)
async def get_model(request: Request) -> Response:
    """Name, version, age and measured quality of the model, and the provider that runs it."""
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
            variant=variants.champion.name,
            candidate=_describe_candidate(followed.deployment, variants.candidate),
            refused=_describe_refusal(followed.refusal),
        )
    )


def _describe_candidate(deployment: Deployment | None, loaded: Variant | None) -> CandidateDescription | None:
    if deployment is None or deployment.candidate is None or deployment.mode == "off":
        return None
    share = deployment.share if deployment.mode == "canary" else None
    in_use = loaded is not None and loaded.version == deployment.candidate and not loaded.monitor.out_of_use
    return CandidateDescription(version=deployment.candidate, mode=deployment.mode, share=share, in_use=in_use)


def _describe_refusal(refusal: Refusal | None) -> RefusedModel | None:
    if refusal is None:
        return None
    return RefusedModel(version=refusal.version, code=refusal.code, since=format_rfc_3339(refusal.since_ms))
