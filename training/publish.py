"""A finished run -> a bundle that the service can serve."""

from datetime import datetime
from pathlib import Path
from typing import Any

from model.contract.manifest import BundleError
from model.contract.sessions import Sessions
from model.export import publish_bundle
from model.nets.network import SequenceNetwork
from model.parity import ExportError
from model.serving.ranking import Scan
from training.counters.neighbours import gather_sessions
from training.errors import RunError, TrainingError
from training.items import read_items
from training.reader import read_log
from training.run import Run


def publish_run(
    run: Run, root: Path, items: Path | None, *, neighbours: Path | None = None, scan: Scan | None = None
) -> Path:
    """Publish the kept weights of a run under `root` and make them current. `items` goes before what `fit` was given.

    `neighbours` is a log, all of whose histories answer while the network cannot, as `session-knn` does.
    Without a `scan` the catalogue's size chooses how items are ranked (model/serving/ranking.py).

    Raises RunError while the run is not finished and for what cannot be served, and TrainingError when the exported
    graph answers otherwise than the network.
    """
    results = run.read_results()
    name = run.recipe.name
    network = run.load_network()
    if not isinstance(network, SequenceNetwork):
        raise RunError(
            f"{name} ranks for the users that it was trained on and knows no others: it can be evaluated, not served"
        )
    metadata = read_items(items) if items else run.read_metadata()
    try:
        return publish_bundle(
            root,
            network.cpu(),
            vocabulary=run.vocabulary,
            counts=run.read_counts(),
            trained_at=datetime.fromisoformat(results["finished_at"]),
            last_event_at=run.config["data"]["last_event_at"],
            data_fingerprint=run.config["data"]["fingerprint"],
            metrics=_name_metrics(run, results),
            histories=run.read_samples(),
            metadata=metadata,
            sessions=None if neighbours is None else _gather_sessions(run, neighbours),
            event_types=() if run.behaviour is None else run.behaviour.event_types,
            name=name,
            scan=scan,
        )
    except (ExportError, BundleError) as error:
        raise TrainingError(f"nothing was published: {error}") from error


def _gather_sessions(run: Run, data: Path) -> Sessions:
    log = read_log(data, run.recipe.data, vocabulary=run.vocabulary)
    return gather_sessions(log.histories, len(run.vocabulary), log.timestamps_ms)


def _name_metrics(run: Run, results: dict[str, Any]) -> dict[str, float]:
    """The run's test metrics, or none where popularity is discounted otherwise than when it was tested."""
    if run.recipe.popularity_discount != run.config["recipe"]["model"].get("popularity_discount", 0):
        return {}
    return {key: metric["value"] for key, metric in results["models"][run.recipe.name].items()}
