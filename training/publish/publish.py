"""A finished run -> a bundle that the service can serve."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from model.contract.bundle import read_bundle
from model.contract.counted import Counted
from model.contract.deployment.changes import set_candidate, use
from model.contract.deployment.document import Deployment, DeploymentError, read_deployment
from model.contract.deployment.writer import change_deployment
from model.contract.manifest import BundleError
from model.contract.rules import Rules
from model.contract.sessions import Sessions
from model.contract.vocabulary import Vocabulary
from model.export.graph import publish_bundle
from model.export.parity import ExportError
from model.export.ranking import Scan
from model.nets.network import SequenceNetwork
from model.nets.nova import Nova
from training.baselines.neighbours import gather_sessions
from training.baselines.rules import gather_rules as gather_all_rules
from training.data.item_features import Metadata
from training.errors import RunError, TrainingError
from training.logs.items import read_items
from training.logs.reader import read_log
from training.publish.new_items import add_items
from training.recipe import DataRecipe
from training.recipe_models import BaselineRecipe
from training.runs.counted import load_counted
from training.runs.networks import load_network
from training.runs.run import Run


def publish_run(
    run: Run,
    root: Path,
    items: Path | None,
    *,
    neighbours: Path | None = None,
    rules: Path | None = None,
    similar: bool = False,
    scan: Scan | None = None,
    as_candidate: bool = False,
    force: bool = False,
) -> Path:
    """Publish the kept weights, or counts, of a run and make them the champion, or the candidate in shadow.

    `neighbours` is a log, all of whose histories answer while the network cannot, and `rules` one whose sequential
    rules can be compared with the network. With `similar` the bundle also ranks the items that are like others. With
    `force` a bundle is named that knows little of the champion's catalogue. Raises what `write_run` and `deploy` do.
    """
    sessions = None if neighbours is None else partial(_gather_sessions, neighbours, run.recipe.data)
    counted = None if rules is None else partial(_gather_rules, rules, run.recipe.data)
    given = read_items(items, run.recipe.data.ids) if items else None
    folder = write_run(run, root, given, gather=sessions, gather_rules=counted, similar=similar, scan=scan)
    deploy(root, folder.name, as_candidate=as_candidate, force=force)
    return folder


def describe_filters(folder: Path) -> tuple[list[str], list[str]]:
    """What the service can filter a bundle's items by, and for each other column of their metadata why it cannot."""
    attributes = read_bundle(folder).attributes
    if attributes is None:
        return [], []
    return list(attributes.columns), [f"{name!r}: {why}" for name, why in attributes.left_out.items()]


def deploy(root: Path, version: str, *, as_candidate: bool = False, force: bool = False) -> Deployment:
    """Make a version of a bundle folder the champion, which it may be already, or the candidate in shadow.

    Raises TrainingError where that is refused; the version stays where it is.
    """
    with suppress(BundleError, DeploymentError):
        now = read_deployment(root)
        if not as_candidate and now.champion == version:
            return now
    action, change = ("candidate", set_candidate(version)) if as_candidate else ("use", use(version))
    try:
        return change_deployment(root, change, action=action, by="publish", why="published", force=force)
    except (BundleError, DeploymentError) as error:
        raise TrainingError(f"{version} was published, but the deployment did not change: {error}") from error


def write_run(
    run: Run,
    root: Path,
    given: Metadata | None,
    *,
    gather: Callable[[Vocabulary], Sessions] | None = None,
    gather_rules: Callable[[Vocabulary], Rules] | None = None,
    similar: bool = False,
    scan: Scan | None = None,
    lineage: Mapping[str, Any] | None = None,
) -> Path:
    """Write a bundle with the kept weights, or counts, of a run under `root`, and its version to published.json.

    The metadata `given` goes before what `fit` was given. A network that was trained for new items (model.id_dropout)
    is published with those given, too. `gather` makes the sessions that answer while the network cannot, as
    `session-knn` does, and `gather_rules` the rules that it can be compared with, as `rules` are. With `similar` the
    bundle also ranks the items that are like others.

    Without a `scan` the catalogue's size chooses how items are ranked (model/export/ranking.py).

    Raises RunError while the run is not finished and for what cannot be served, and TrainingError when the exported
    graph answers otherwise than the network.
    """
    results = run.read_results()
    name = run.recipe.name
    network = load_counted(run) if isinstance(run.recipe.model, BaselineRecipe) else load_network(run).cpu()
    if not isinstance(network, SequenceNetwork | Counted):
        raise RunError(f"{name} ranks only for the users of its training log: it can be evaluated, but not published")
    metadata: Metadata | None = run.read_metadata()
    vocabulary = run.vocabulary
    if given:
        if isinstance(network, Nova) and network.config.id_dropout:
            network, vocabulary = add_items(run, network, given)
        metadata = {**(metadata or {}), **given}
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    counts[vocabulary.encode(run.vocabulary.item_ids) - 1] = run.read_counts()
    histories = [vocabulary.encode(run.vocabulary.decode(sample)).tolist() for sample in run.read_samples()]
    try:
        folder = publish_bundle(
            root,
            network,
            vocabulary=vocabulary,
            counts=counts,
            trained_at=datetime.fromisoformat(results["finished_at"]),
            last_event_at=run.config["data"]["last_event_at"],
            data_fingerprint=run.config["data"]["fingerprint"],
            metrics=_name_metrics(run, results),
            histories=histories,
            metadata=metadata,
            sessions=None if gather is None else gather(vocabulary),
            rules=None if gather_rules is None else gather_rules(vocabulary),
            event_types=() if run.event_features is None else run.event_features.event_types,
            name=name,
            similar=similar,
            scan=scan,
            lineage=lineage,
        )
    except (ExportError, BundleError) as error:
        raise TrainingError(f"the run was not published: {error}") from error
    run.note_version(folder.name)
    return folder


def _gather_sessions(data: Path, recipe: DataRecipe, vocabulary: Vocabulary) -> Sessions:
    log = read_log(data, recipe, vocabulary=vocabulary)
    return gather_sessions(log.histories, len(vocabulary), log.timestamps_ms)


def _gather_rules(data: Path, recipe: DataRecipe, vocabulary: Vocabulary) -> Rules:
    return gather_all_rules(read_log(data, recipe, vocabulary=vocabulary).histories, len(vocabulary))


def _name_metrics(run: Run, results: dict[str, Any]) -> dict[str, float]:
    """The run's test metrics, or none where popularity is discounted otherwise than when it was tested."""
    if run.recipe.popularity_discount != run.config["recipe"]["model"].get("popularity_discount", 0):
        return {}
    return {key: metric["value"] for key, metric in results["models"][run.recipe.name].items()}
