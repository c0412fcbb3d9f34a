"""Builds the application: the model, the store, the routes and the middleware around them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp

from model.contract.bundle import OpenBundle
from service.api.requests import MAX_TIMEOUT_MS
from service.auth.guard import AuthGuard
from service.errors import StartFailed, StoreUnavailable
from service.health import Health
from service.http.admission import Admission
from service.http.allowed_hosts import AllowedHosts
from service.http.connection_limit import ConnectionLimit
from service.http.dependencies import Service
from service.http.openapi import install_openapi
from service.http.outer_middleware import RequestMiddleware
from service.http.problems import install_problems
from service.http.protocol import RULES, ConnectionRules
from service.http.routes import erasure, events, lookup, operations, recommend
from service.http.routes.pages import OPENAPI, make_pages
from service.http.static_routes import StaticRoutes
from service.inference.engine import RUNTIME_VERSION, may_use_gpu
from service.inference.model import LiveModel, load_model
from service.inference.runner import EngineRunner
from service.inference.thread import EngineThread
from service.libraries import check_libraries
from service.recommend.pipeline import Pipeline
from service.recommend.recommender import Recommender
from service.settings import Settings
from service.store.circuit_breaker import CircuitBreaker
from service.store.connection import connect
from service.store.history import DAY_MS, HistoryStore
from service.store_monitor import StoreMonitor
from service.system.open_files import limit_connections
from service.telemetry.metrics import Metrics

ROUTERS = (recommend.router, events.router, lookup.router, erasure.router, operations.router)


class Loaded(NamedTuple):
    """A loaded model and the thread that must run it."""

    model: LiveModel
    thread: EngineThread


def create_app(
    settings: Settings, loaded: Loaded | None = None, *, workers_missing: Callable[[], int] = lambda: 0
) -> FastAPI:
    """The service as an ASGI application. Without `loaded` it loads the model that the settings name.

    `workers_missing` returns how many of the configured workers do not serve.

    Needs `redis_url`. It starts even while the store is down. Raises StartFailed.
    """
    check_libraries()
    if settings.redis_url is None:
        raise StartFailed("redis_url is missing: the embedded store is started by nextitem-serve only")
    model, thread = loaded or load_configured(settings)
    docs = settings.docs or settings.is_local
    routers = (*ROUTERS, make_pages(docs=docs))
    app = FastAPI(
        title="nextitem",
        version=version("nextitem"),
        description="Next-item recommendations, online",
        redirect_slashes=False,  # paths are exact
        openapi_url=OPENAPI if docs else None,
        docs_url=None,  # its page loads scripts from elsewhere; routes/pages.py has ours
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,  # operationId: the function that answers
        lifespan=_run,
        # Requests are measured in metrics.py; FastAPI must not send anything anywhere by itself.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )
    for router in routers:
        app.include_router(router)
    metrics = Metrics(
        event_types=settings.event_types,
        model_version=model.manifest.version,
        routes=[*_list_routes(routers), *([(OPENAPI, "GET")] if docs else ())],
    )
    metrics.built(version=version("nextitem"), onnxruntime=RUNTIME_VERSION)
    metrics.model_loaded(
        name=model.manifest.name,
        provider=model.engine.provider,
        digest=model.digest,
        trained_at_s=_epoch_seconds(model.manifest.trained_at),
    )
    store = HistoryStore(
        connect(settings.redis_url, password_file=settings.redis_password_file),
        history_length=settings.history_length,
        idle_ms=settings.history_days * DAY_MS,
        durability=settings.durability,
        reads_events=model.reads_events,
        observe=metrics.store_called,
        on_error=metrics.store_failed,
    )
    runner = EngineRunner(thread, stuck_after_s=MAX_TIMEOUT_MS / 1000)  # nobody waits for a longer run any more
    recommender = Recommender(
        Pipeline(model, store=store, breaker=CircuitBreaker("reads"), runner=runner),
        runner=runner,
        metrics=metrics,
        max_batch=settings.max_batch,
        max_waiting=settings.queue_limit,
        max_version_waiters=settings.version_waiter_limit,
    )
    health = Health(store=store, recommender=recommender, workers_missing=workers_missing)
    store_monitor = StoreMonitor(store=store, metrics=metrics)
    app.state.service = Service(
        settings,
        model,
        metrics,
        store,
        CircuitBreaker("appends"),
        # Its own breaker: an erasure may take half a minute, and events must not wait for it.
        CircuitBreaker("erasures"),
        recommender,
        health,
        store_monitor,
        AuthGuard(settings.keys_file),
    )
    build_framework = app.build_middleware_stack
    routes = [route for router in routers for route in router.routes]

    def build_front() -> ASGIApp:
        framework = build_framework()
        if isinstance(framework, ServerErrorMiddleware):
            framework = framework.app  # RequestMiddleware answers bugs, as problem documents
        static_routes = StaticRoutes(framework, routes=routes)
        admission = Admission(
            static_routes,
            metrics=metrics,
            max_requests=settings.request_limit,
            max_event_requests=settings.event_request_limit,
            max_body_bytes=settings.max_body_mib << 20,
        )
        return RequestMiddleware(admission, metrics=metrics, health=health, routes=routes)

    # Not add_middleware: every request would first pass the framework's own layers.
    app.build_middleware_stack = build_front  # type: ignore[method-assign]  # where Starlette builds it
    install_problems(app)
    [most_popular] = model.vocabulary.decode([int(model.popular.order[0])])
    install_openapi(app, item_id=most_popular)
    return app


def _list_routes(routers: Iterable[APIRouter]) -> Iterator[tuple[str, str]]:
    """Path template and method of every API route."""
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute):
                yield from ((route.path_format, method) for method in route.methods or ())


def load_configured(settings: Settings, bundle: OpenBundle | None = None) -> Loaded:
    """Load the model of an open bundle, or of the bundle that the settings name. Raises StartFailed.

    CUDA graphs belong to the thread that captures them, so on a GPU the engine's thread loads the model. On a CPU the
    calling thread loads it, so that a signal can interrupt it.
    """
    thread = EngineThread()
    load = partial(
        load_model,
        bundle or settings.bundle,
        provider=settings.provider,
        threads=settings.threads,
        max_batch=settings.max_batch,
        cuda_graphs=settings.cuda_graphs,
    )
    return Loaded(thread.submit(load).result() if may_use_gpu(settings.provider) else load(), thread)


@asynccontextmanager
async def _run(app: FastAPI) -> AsyncIterator[Mapping[str, object]]:
    service: Service = app.state.service
    with contextlib.suppress(StoreUnavailable):  # so that the log names a fault before the first request
        await service.store.ping()
    service.recommender.start()
    if not service.health.draining:  # told to stop before it began
        service.health.phase = "serving"
    flushing = asyncio.create_task(service.metrics.keep_flushed())
    settings = service.settings
    connections = ConnectionLimit(
        limit_connections(settings.max_connections), on_change=service.metrics.connections_changed
    )
    yield {RULES: ConnectionRules(AllowedHosts.of(settings), connections)}  # which the server hands to every connection
    service.health.drain()
    await service.recommender.close()
    await service.store.close()
    flushing.cancel()
    service.metrics.flush()


def _epoch_seconds(moment: str) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None
