"""All the wiring, once."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from service.admission import Admission
from service.breaker import Breaker
from service.connection import connect
from service.engine import may_use_gpu
from service.engine_thread import EngineThread
from service.envelope import Envelope
from service.errors import StartFailed
from service.express import Express
from service.gate import Gate
from service.health import Health
from service.history import DAY_MS, HistoryStore
from service.live_model import LiveModel, load_model
from service.logs import configure_logs
from service.metrics import Metrics
from service.openapi import install_openapi
from service.problems import install_problems
from service.recommender import Recommender
from service.routes import erasure, events, lookup, operations, recommend
from service.settings import Settings, describe_faults
from service.store_watch import StoreWatch
from service.wiring import Service

ROUTERS = (recommend.router, events.router, lookup.router, erasure.router, operations.router)


class Loaded(NamedTuple):
    """A model, and the thread that is to run it."""

    model: LiveModel
    thread: EngineThread


def create_app(settings: Settings, loaded: Loaded | None = None) -> FastAPI:
    """The service as an ASGI application, around the model that is loaded or the one that the settings name.

    Needs `redis_url` set; a store that is down does not keep it from starting. Raises StartFailed.
    """
    if settings.redis_url is None:
        raise StartFailed("redis_url is missing: the embedded store is started by nextitem-serve only")
    model, thread = loaded or load_configured(settings)
    app = FastAPI(
        title="nextitem",
        version=version("nextitem"),
        description="Next-item recommendations, online",
        redirect_slashes=False,  # paths are exact
        docs_url="/docs" if settings.docs or settings.is_local else None,
        openapi_url="/openapi.json" if settings.docs or settings.is_local else None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        lifespan=_run,
        # Requests are measured in metrics.py; FastAPI must not send anything anywhere by itself.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )
    for router in ROUTERS:
        app.include_router(router)
    metrics = Metrics(
        event_types=settings.event_types,
        model_version=model.manifest.version,
        routes=[
            *_list_routes(),
            *((path, "GET") for path in (app.docs_url, app.openapi_url) if path is not None),
        ],
    )
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
        observe=metrics.store_called,
        on_error=metrics.store_failed,
    )
    recommender = Recommender(
        model,
        store=store,
        breaker=Breaker("read"),
        metrics=metrics,
        executor=thread,
        max_batch=settings.max_batch,
        max_waiting=settings.queue_room,
    )
    health = Health(store=store, recommender=recommender)
    store_watch = StoreWatch(store=store, metrics=metrics)
    app.state.service = Service(
        settings,
        model,
        metrics,
        store,
        Breaker("append"),
        recommender,
        health,
        store_watch,
        Gate(settings.keys_file),
    )
    build_framework = app.build_middleware_stack

    def build_front() -> ASGIApp:
        framework = build_framework()
        if isinstance(framework, ServerErrorMiddleware):
            framework = framework.app  # what it makes of a bug is no problem; the Envelope answers all of them
        express = Express(framework, routes=[route for router in ROUTERS for route in router.routes])
        admission = Admission(
            express, metrics=metrics, max_requests=settings.request_room, max_event_requests=settings.event_room
        )
        return Envelope(admission, metrics=metrics, health=health)

    # Not by add_middleware: the framework's own layers would stand before ours and cost every request a share.
    app.build_middleware_stack = build_front  # type: ignore[method-assign]  # where Starlette builds it
    install_problems(app)
    install_openapi(app)
    return app


def create_app_from_environment() -> FastAPI:
    """The application of a worker process, set up by NEXTITEM_* variables. Ends it when it cannot start.

    The status is uvicorn's own for that, so that its supervisor does not try again.
    """
    try:
        settings = Settings()
    except ValidationError as error:
        print(f"nextitem: {describe_faults(error)}", file=sys.stderr)  # noqa: T201 - there is no log yet
        sys.exit(STARTUP_FAILURE)
    configure_logs(settings.log_level)
    try:
        return create_app(settings)
    except StartFailed as error:
        print(f"nextitem: {error}", file=sys.stderr)  # noqa: T201 - as nextitem-serve says it
        sys.exit(STARTUP_FAILURE)


def _list_routes() -> Iterator[tuple[str, str]]:
    """Path template and method of every route of ours."""
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute):
                yield from ((route.path_format, method) for method in route.methods or ())


def load_configured(settings: Settings) -> Loaded:
    """The model that the settings name. Raises StartFailed.

    What is captured on a GPU belongs to the thread that loads it. Elsewhere this one does, which a signal may end.
    """
    thread = EngineThread()
    load = partial(
        load_model,
        settings.bundle,
        provider=settings.provider,
        threads=settings.threads,
        max_batch=settings.max_batch,
        cuda_graphs=settings.cuda_graphs,
    )
    return Loaded(thread.submit(load).result() if may_use_gpu(settings.provider) else load(), thread)


@asynccontextmanager
async def _run(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.recommender.start()
    if not service.health.draining:  # told to stop before it began
        service.health.phase = "serving"
    settling = asyncio.create_task(service.metrics.keep_settled())
    yield
    service.health.drain()
    await service.recommender.close()
    await service.store.close()
    settling.cancel()
    service.metrics.settle()


def _epoch_seconds(moment: str) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None
