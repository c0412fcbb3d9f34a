"""The application context: the parts of a running service that its routes use."""

from dataclasses import dataclass

from starlette.requests import Request

from service.catalogue.live import LiveCatalogue
from service.catalogue.writer import CatalogueWriter
from service.deployment.followed import Followed
from service.deployment.reporter import Reporter
from service.deployment.tally_writer import TallyWriter
from service.deployment.watcher import Watcher
from service.health import Health
from service.http.status_board import StatusBoard
from service.inference.model import LiveModel
from service.ingest.ingestor import Ingestor
from service.recommend.recommender import Recommender
from service.scenarios.live_scenarios import LiveScenarios
from service.search.item_search import ItemSearch
from service.settings import Settings
from service.store.circuit_breaker import CircuitBreaker
from service.store.history import HistoryStore
from service.store_monitor import StoreMonitor
from service.telemetry.metrics import Metrics
from service.telemetry.problems import ProblemLog


@dataclass(frozen=True)
class Service:
    """The parts that create_app puts together."""

    settings: Settings
    metrics: Metrics
    store: HistoryStore
    ingestor: Ingestor
    erase_breaker: CircuitBreaker
    """Not that of events: an erasure takes up to half a minute, and as a probe it would block all events that long."""
    catalogue: LiveCatalogue
    catalogue_writer: CatalogueWriter
    recommender: Recommender
    health: Health
    store_monitor: StoreMonitor
    problems: ProblemLog
    status_board: StatusBoard
    watcher: Watcher | None
    """None for a single bundle, which nothing changes."""
    reporter: Reporter
    tally_writer: TallyWriter
    scenarios: LiveScenarios
    item_search: ItemSearch | None
    """None where it is switched off."""

    @property
    def model(self) -> LiveModel:
        """The champion's model. Take it once for one piece of work: a swap may change it at any await."""
        return self.recommender.variants.champion.model

    @property
    def followed(self) -> Followed:
        """What this worker knows of the deployment."""
        return Followed(follows=False) if self.watcher is None else self.watcher.followed


SERVICE = "service"
"""Where in a request's scope the application context is: its frameworks' own places cost a microsecond each."""


def get_service(request: Request) -> Service:
    """The application context of a request."""
    service: Service = request.scope[SERVICE]
    return service
