"""Builds the application: the model, the store, the routes and the middleware around them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from redis.asyncio import Redis
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from model.contract.deployment.document import is_followed
from service.auth.guard import AUTH_GUARD, AuthGuard
from service.catalogue.live import LiveCatalogue
from service.catalogue.writer import CatalogueWriter
from service.deployment.followed import Followed
from service.deployment.instance import Instance
from service.deployment.reporter import Reporter
from service.deployment.startup import load_candidate, load_compared, load_first
from service.deployment.swap import Swapper, describe_model
from service.deployment.tally_writer import TallyWriter
from service.deployment.watcher import Watcher
from service.errors import StartFailed, StoreUnavailable
from service.health import Health
from service.http.admission import Admission
from service.http.allowed_hosts import AllowedHosts
from service.http.connection_limit import ConnectionLimit
from service.http.dependencies import SERVICE, Service
from service.http.openapi import install_openapi
from service.http.outer_middleware import RequestMiddleware
from service.http.problems import install_problems
from service.http.protocol import RULES, ConnectionRules
from service.http.routes import catalogue, erasure, events, lookup, models, operations, recommend, similar
from service.http.routes.pages import OPENAPI, make_pages
from service.http.static_routes import StaticRoutes
from service.http.status_board import StatusBoard
from service.inference.engine import RUNTIME_VERSION
from service.inference.loading import Loaded
from service.inference.model import LiveModel
from service.ingest.ingestor import Ingestor
from service.libraries import check_libraries
from service.recommend.recommender import Recommender
from service.recommend.variant import Variant
from service.recommend.variants import Variants
from service.scenarios.live_scenarios import LiveScenarios
from service.search.item_search import ItemSearch
from service.settings import Settings
from service.store.catalogue import CatalogueStore
from service.store.circuit_breaker import CircuitBreaker
from service.store.connection import connect
from service.store.history import DAY_MS, HistoryStore
from service.store_monitor import StoreMonitor
from service.system.open_files import limit_connections
from service.telemetry.metrics import Metrics
from service.telemetry.problems import ProblemLog

ROUTERS = (
    recommend.router, similar.router, events.router, lookup.router, catalogue.router, models.router, erasure.router,
    operations.router,
)  # fmt: skip

CANCEL_EVERY_S = 2.0
"""Longer than any of the background tasks takes to end."""


class Application:
    """The service as an ASGI application: our layers around FastAPI's."""

    def __init__(self, service: Service, framework: FastAPI, layers: ASGIApp) -> None:
        self.service = service
        self.framework = framework
        """Describes the routes and serves those with parameters. Its own way in is not used."""
        self._layers = layers
        self._auth_guard = AuthGuard(service.settings.keys_file)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or the lifespan."""
        scope["app"] = self.framework  # as FastAPI's own way in sets it
        scope[SERVICE], scope[AUTH_GUARD] = self.service, self._auth_guard
        await self._layers(scope, receive, send)


def create_app(
    settings: Settings, loaded: Loaded | None = None, *, workers_missing: Callable[[], int] = lambda: 0
) -> Application:
    """The service as an ASGI application. Without `loaded` it loads the model that the settings name.

    `workers_missing` returns how many of the configured workers do not serve.

    Needs `redis_url`. It starts even while the store is down. Raises StartFailed.
    """
    check_libraries()
    if settings.redis_url is None:
        raise StartFailed("redis_url is missing: the embedded store is started by nextitem-serve only")
    instance = Instance.from_environment()
    loaded = loaded or load_first(settings, instance.book)
    candidate = load_candidate(settings, instance.book, loaded.model)
    answering = [one.model for one in (loaded, candidate) if one is not None]
    docs = settings.docs or settings.is_local
    routers = (*ROUTERS, make_pages(docs=docs))
    service = _make_service(
        settings,
        loaded,
        candidate,
        load_compared(settings, instance.book, answering),
        instance=instance,
        client=connect(settings.redis_url, password_file=settings.redis_password_file),
        metrics=_make_metrics(settings, loaded.model, [*_list_routes(routers), *([(OPENAPI, "GET")] if docs else ())]),
        workers_missing=workers_missing,
    )
    framework = _make_framework(service, routers, docs=docs)
    return Application(service, framework, _make_layers(service, framework, routers))


def _make_metrics(settings: Settings, model: LiveModel, routes: Sequence[tuple[str, str]]) -> Metrics:
    manifest = model.manifest
    metrics = Metrics(
        event_types=settings.event_types,
        model_version=manifest.version,
        routes=routes,
        bundles=settings.bundle if is_followed(settings.bundle) else None,
    )
    metrics.built(version=version("nextitem"), onnxruntime=RUNTIME_VERSION)
    describe_model(metrics, model)
    return metrics


def _make_service(
    settings: Settings,
    loaded: Loaded,
    candidate: Loaded | None,
    compared: Sequence[Loaded],
    *,
    instance: Instance,
    client: Redis,
    metrics: Metrics,
    workers_missing: Callable[[], int],
) -> Service:
    store = HistoryStore(
        client,
        history_length=settings.history_length,
        idle_ms=settings.history_days * DAY_MS,
        durability=settings.durability,
        observe=metrics.store_called,
        on_error=metrics.store_failed,
    )
    catalogue_store = CatalogueStore(store)
    live_catalogue = LiveCatalogue(
        catalogue_store, breaker=CircuitBreaker("catalogue reads"), on_version=metrics.catalogue.reached
    )
    store.on_catalogue_version = live_catalogue.note_version
    make_variant = partial(
        Variant,
        store=store,
        breaker=CircuitBreaker("reads"),
        catalogue=live_catalogue,
        metrics=metrics,
        max_batch=settings.max_batch,
        max_waiting=settings.queue_limit,
    )
    variants = Variants(
        generation=0,
        champion=make_variant(loaded),
        candidate=None if candidate is None else make_variant(candidate),
        compared=tuple(make_variant(one) for one in compared),
    )
    store.reads_events = variants.read_events
    metrics.model.models_loaded(len(variants.all))
    recommender = Recommender(variants, metrics=metrics, max_version_waiters=settings.version_waiter_limit)
    health = Health(store=store, recommender=recommender, workers_missing=workers_missing)
    watcher: Watcher | None = None
    reporter = Reporter(
        client,
        instance,
        recommender=recommender,
        followed=lambda: Followed(follows=False) if watcher is None else watcher.followed,
        also_serve=settings.also_serve,
    )
    if is_followed(settings.bundle):
        watcher = Watcher(
            settings,
            instance,
            recommender=recommender,
            swapper=Swapper(settings, recommender=recommender, store=store, metrics=metrics, make_variant=make_variant),
            metrics=metrics,
            leaving=lambda: health.leaving,
            on_change=reporter.notify,
        )
    store_monitor, problems = StoreMonitor(store=store, metrics=metrics), ProblemLog(instance.folder)
    return Service(
        settings=settings,
        metrics=metrics,
        store=store,
        ingestor=Ingestor(
            store=store,
            breaker=CircuitBreaker("appends"),
            metrics=metrics,
            event_types=settings.event_types,
            known_items=lambda: recommender.variants.champion.model.vocabulary,
        ),
        erase_breaker=CircuitBreaker("erasures"),
        catalogue=live_catalogue,
        catalogue_writer=CatalogueWriter(catalogue_store, breaker=CircuitBreaker("changes")),
        recommender=recommender,
        health=health,
        store_monitor=store_monitor,
        problems=problems,
        status_board=StatusBoard(
            client,
            configured=settings.workers,
            workers_missing=workers_missing,
            health=health,
            store_monitor=store_monitor,
            problems=problems,
        ),
        watcher=watcher,
        reporter=reporter,
        tally_writer=TallyWriter(client, recommender=recommender),
        scenarios=LiveScenarios(settings.scenarios, metrics.scenarios),
        item_search=ItemSearch(field=settings.search_field) if settings.search == "on" else None,
    )


def _make_framework(service: Service, routers: Sequence[APIRouter], *, docs: bool) -> FastAPI:
    framework = FastAPI(
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
        framework.include_router(router)
    framework.state.service = service
    install_problems(framework, routes=[route for router in routers for route in router.routes])
    install_openapi(framework, choose_item=lambda: _most_popular(service.model))
    return framework


def _most_popular(model: LiveModel) -> str:
    [item_id] = model.vocabulary.decode([int(model.popular.order[0])])
    return item_id


def _make_layers(service: Service, framework: FastAPI, routers: Sequence[APIRouter]) -> ASGIApp:
    """Our layers around FastAPI's. Not add_middleware: every request would first pass the framework's own layers."""
    inner = framework.build_middleware_stack()
    if isinstance(inner, ServerErrorMiddleware):
        inner = inner.app  # RequestMiddleware answers bugs, as problem documents
    settings, routes = service.settings, [route for router in routers for route in router.routes]
    admission = Admission(
        StaticRoutes(inner, routes=routes),
        metrics=service.metrics,
        max_requests=settings.request_limit,
        max_event_requests=settings.event_request_limit,
        max_body_bytes=settings.max_body_mib << 20,
    )
    return RequestMiddleware(
        admission, metrics=service.metrics, problems=service.problems, health=service.health, routes=routes
    )


def _list_routes(routers: Sequence[APIRouter]) -> Iterator[tuple[str, str]]:
    """Path template and method of every API route."""
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute):
                yield from ((route.path_format, method) for method in route.methods or ())


@asynccontextmanager
async def _run(framework: FastAPI) -> AsyncIterator[Mapping[str, object]]:
    service: Service = framework.state.service
    with contextlib.suppress(StoreUnavailable):  # so that the log names a fault before the first request
        await service.store.ping()
    await service.catalogue.load()
    service.recommender.start()
    if not service.health.draining:  # told to stop before it began
        service.health.phase = "serving"
    chores = (
        service.metrics.keep_flushed,
        service.problems.keep_written,
        service.reporter.run,
        service.tally_writer.run,
    )
    background = [asyncio.create_task(chore()) for chore in chores]
    if service.watcher is not None:
        service.watcher.start()
    settings = service.settings
    connections = ConnectionLimit(
        limit_connections(settings.max_connections), on_change=service.metrics.connections_changed
    )
    yield {RULES: ConnectionRules(AllowedHosts.of(settings), connections)}  # which the server hands to every connection
    service.health.drain()
    if service.watcher is not None:
        service.watcher.stop()
    if service.item_search is not None:
        service.item_search.close()
    await service.recommender.close()
    await _end(background)
    service.catalogue.close()
    await service.store.close()
    service.metrics.flush()


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: a call of the store may swallow a cancellation."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_EVERY_S)
