"""The parts of a running service, as its routes find them."""

from dataclasses import dataclass

from starlette.requests import Request

from service.breaker import Breaker
from service.health import Health
from service.history import HistoryStore
from service.live_model import LiveModel
from service.metrics import Metrics
from service.recommender import Recommender
from service.settings import Settings
from service.store_watch import StoreWatch


@dataclass(frozen=True)
class Service:
    """Everything that create_app wires together."""

    settings: Settings
    model: LiveModel
    metrics: Metrics
    store: HistoryStore
    append_breaker: Breaker
    recommender: Recommender
    health: Health
    store_watch: StoreWatch


def get_service(request: Request) -> Service:
    """The service that a request came to."""
    service: Service = request.app.state.service
    return service
