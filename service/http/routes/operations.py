"""GET routes for operators: health, status and metrics."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.api.operator_responses import ServiceStatus
from service.api.responses import Liveness, Readiness
from service.auth.guard import GuardedRoute, requires_scope
from service.errors import Invalid
from service.http.dependencies import get_service
from service.http.parameters import describe_problems, refuse_query, write
from service.telemetry.exposition import CONTENT_TYPE

NAMES = "name[]"
"""The query parameter for it, as Prometheus' own clients call it. Other parameters are passed over, as they do."""

router = APIRouter(route_class=GuardedRoute, tags=["operations"])


@router.get(
    "/health/live",
    summary="Is the process alive?",
    response_model=Liveness,
    openapi_extra=requires_scope(None),  # probes, here and below, send no keys
)
async def get_live(_request: Request) -> Response:
    """200 while the event loop runs."""
    return write(Liveness(status="ok"))


@router.get(
    "/health/ready",
    summary="Can the service answer recommendations?",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Starting, draining, or without its batcher"}},
    openapi_extra=requires_scope(None),
)
async def get_ready(request: Request) -> Response:
    """200 while the service can answer recommendations; `degraded`, with reasons, while it has to fall back."""
    status, readiness = await get_service(request).health.report()
    return write(readiness, status=status)


@router.get(
    "/status",
    summary="Workers, store and the last problems",
    response_model=ServiceStatus,
    responses={**describe_problems(Invalid)},
    openapi_extra=requires_scope("metrics"),
)
async def get_status(request: Request) -> Response:
    """Readiness with its reasons, what the workers serve, the store's state, and the last problems of all workers."""
    refuse_query(request)
    return write(await get_service(request).status_board.report(request.scope["state"]["timer"].took_ms))


@router.get(
    "/metrics",
    summary="Prometheus metrics of all workers",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    openapi_extra={
        **requires_scope("metrics"),
        "parameters": [
            {
                "name": NAMES,
                "in": "query",
                "description": "names of samples: the answer has these alone, and is made in less time",
                "schema": {"type": "array", "items": {"type": "string"}},
            }
        ],
    },
)
async def get_metrics(request: Request) -> Response:
    """Metrics in the Prometheus text format."""
    service = get_service(request)
    await service.store_monitor.refresh()
    names = frozenset(request.query_params.getlist(NAMES)) if request.scope["query_string"] else None
    return Response(await service.metrics.read(names or None), media_type=CONTENT_TYPE)
