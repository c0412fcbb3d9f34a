"""GET routes for whoever runs the service: health and metrics."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from service.answers import Liveness, Readiness
from service.gate import GuardedRoute, needs
from service.metrics import CONTENT_TYPE
from service.routes.exchange import write
from service.wiring import get_service

router = APIRouter(route_class=GuardedRoute)


@router.get(
    "/health/live",
    summary="Does the event loop turn?",
    response_model=Liveness,
    openapi_extra=needs(None),  # as the next: probes bring no keys
)
async def get_live(_request: Request) -> Response:
    """200 as long as anything is answered at all."""
    return write(Liveness(status="ok"))


@router.get(
    "/health/ready",
    summary="Can it answer recommendations?",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Starting, draining, or without its batcher"}},
    openapi_extra=needs(None),
)
async def get_ready(request: Request) -> Response:
    """200 when recommendations can be answered, be it from the ladder: then `degraded`, with the reasons."""
    status, readiness = await get_service(request).health.report()
    return write(readiness, status=status)


@router.get(
    "/metrics",
    summary="Prometheus metrics of all workers",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    openapi_extra=needs("metrics"),
)
async def get_metrics(request: Request) -> Response:
    """Prometheus' text format."""
    service = get_service(request)
    await service.store_watch.refresh()
    service.metrics.settle()
    # In a thread: with several workers this reads files.
    content = await asyncio.to_thread(service.metrics.expose)
    return Response(content, media_type=CONTENT_TYPE)
