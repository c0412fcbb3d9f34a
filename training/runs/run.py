"""A run's folder.

```
RUN/config.json                      the resolved recipe, the data's fingerprint, the environment
    vocabulary.txt, counts.npy       the items, and how often each occurs in the log
    trained.npy                      with a network: how often each occurs in the training events
    samples.json                     some histories, for the parity check and the golden examples of a bundle
    metadata.json                    optional: what is known of the items
    features.json                    with side information: its columns' values, in the order of their codes
    item_vectors.npy                 with train.item_init = vectors: what was added to the items' random embeddings
    behaviour.json                   with event features: event types and the edges of buckets
    metrics.jsonl                    one line an epoch
    checkpoint/last.safetensors      all that `fit --resume` needs
    kept.safetensors                 the weights of the best epoch, or of the last (train.keep)
    rules.safetensors                with model.rules_per_item: the sequential rules and their weight
    counted.npy                      of a baseline that can be published: its counts of the whole log (counted.py)
    recency.safetensors              with model.recent_days: how often each item occurred of late, and its weight
    test_ranks.npz                   for each test question, how many items scored higher and how many the same
    results.json                     the test metrics, written when the run is finished
    curves.png                       loss and validation, drawn
    attention.png                    where a transformer looks; none where all histories are short
    report.html, report.json         the run for people, by `fit` and `report`; what of it only the log tells
    published.json                   the versions of the bundles that hold its weights
    retrained.json                   of a refit: the recipe that it was measured by, and its parent's version
    fit.lock                         held by the one training that writes here
```

A baseline has no weights and no plots: to be evaluated it counts the log anew.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.contract.atomic_files import write_whole
from model.contract.bundle_content import decode_counts, encode_counts
from model.contract.npy import ARRAY_FAULTS, encode_arrays
from model.contract.vocabulary import Vocabulary
from training.data.event_features import EventFeatures, encode_inputs
from training.data.histories import Histories
from training.data.interactions import Log
from training.data.item_features import Column, Metadata, columns_from_json, columns_to_json
from training.data.item_start import ITEM_VECTORS, ItemStart
from training.data.split import count_items
from training.environment import describe_environment
from training.errors import RecipeError, RunError
from training.evaluation.ranking import Ranks
from training.json_files import write_json
from training.recipe import Recipe, make_recipe
from training.recipe_models import NetworkRecipe, TransformerRecipe
from training.runs.chosen import find_chosen
from training.runs.documents import CONFIG, EPOCH, parse, require_metrics, shape_results
from training.runs.progress import Epoch

_SAMPLES, _COUNTED_LENGTH = 32, 50
_FAULTS = (*ARRAY_FAULTS, AttributeError, EOFError, KeyError, RecipeError, zipfile.BadZipFile, zlib.error)
"""What reading a damaged file raises: JSON, arrays and archives have theirs."""


class Run:
    """The files of one run. Reading checks them and raises RunError for every fault."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint" / "last.safetensors"
        self.kept = path / "kept.safetensors"
        self.rules = path / "rules.safetensors"
        self.recency = path / "recency.safetensors"
        self.curves = path / "curves.png"
        self.attention = path / "attention.png"

    @classmethod
    def open(cls, path: Path) -> "Run":
        """An existing run, or the best one that `fit` without a recipe left there. Raises RunError for none."""
        run = cls(find_chosen(path))
        if not run.exists:
            raise RunError(f"{path} is not a run: it has no config.json")
        return run

    @property
    def exists(self) -> bool:
        """Whether a run has been started here."""
        return (self.path / "config.json").is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run has results."""
        return (self.path / "results.json").is_file()

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return dict(self._read_json("config.json", CONFIG))

    @cached_property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        begun = self.config["recipe"]
        with self.reading("config.json"):
            return make_recipe(begun, stored_in=str(self.path))

    def discount_popularity(self, discount: float) -> None:
        """Rank with this model.popularity_discount from now on. Raises RunError where the model has none."""
        if not isinstance(self.recipe.model, TransformerRecipe):
            raise RunError(f"{self.path} is a run of {self.recipe.model.name}: only transformers have the discount")
        self.recipe = replace(self.recipe, model=replace(self.recipe.model, popularity_discount=discount))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The items that the network knows."""
        with self.reading("vocabulary.txt"):
            return Vocabulary.from_bytes((self.path / "vocabulary.txt").read_bytes())

    def read_counts(self) -> NDArray[np.int64]:
        """How often each item occurs in the log, its newest events too (V)."""
        return self._read_counts("counts.npy")

    def read_trained_counts(self) -> NDArray[np.int64]:
        """How often each item occurs in the training events (V)."""
        return self._read_counts("trained.npy")

    def _read_counts(self, name: str) -> NDArray[np.int64]:
        V = len(self.vocabulary)
        with self.reading(name):
            return decode_counts((self.path / name).read_bytes(), V)

    def read_samples(self) -> list[list[int]]:
        """Some histories as item indexes, oldest first."""
        samples: list[list[int]] = self._read_json("samples.json")
        vocabulary = self.vocabulary
        with self.reading("samples.json"):
            for sample in samples:
                vocabulary.decode(sample)
        return samples

    def read_metadata(self) -> dict[str, dict[str, object]] | None:
        """What `fit --items` was given, if anything."""
        return self._read_json("metadata.json", {}) if (self.path / "metadata.json").is_file() else None

    def read_results(self) -> dict[str, Any]:
        """The test metrics. Raises RunError while the run is not finished."""
        if not self.is_finished:
            raise RunError(f"{self.path} is not finished: continue it with `nextitem-train fit ... --resume`")
        results = dict(self._read_json("results.json", shape_results(self.recipe)))
        with self.reading("results.json"):
            require_metrics(results, self.recipe.name)
            datetime.fromisoformat(results["finished_at"])
        return results

    def write_ranks(self, ranks: Ranks) -> None:
        """Keep what the test questions came to, so that runs can be compared question by question."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, greater=ranks.greater, ties=ranks.ties)
        write_whole(self.path / "test_ranks.npz", buffer.getvalue())

    def read_ranks(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many items scored higher and how many the same, by test question: both (B)."""
        with self.reading("test_ranks.npz"):
            content = (self.path / "test_ranks.npz").read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                greater, ties = file["greater"], file["ties"]
            for ranks in (greater, ties):
                if ranks.dtype != np.int64 or ranks.ndim != 1 or len(ranks) != len(greater) or ranks.min(initial=0) < 0:
                    raise ValueError("not two numbers of at least 0 for each question")
        return greater, ties

    def read_columns(self) -> tuple[Column, ...]:
        """The columns of side information that the network is given, if any."""
        if not (self.path / "features.json").is_file():
            return ()
        document = self._read_json("features.json")
        with self.reading("features.json"):
            return columns_from_json(document)

    @cached_property
    def event_features(self) -> EventFeatures | None:
        """The event features that the network reads, if any."""
        if not (self.path / "behaviour.json").is_file():
            return None
        document = self._read_json("behaviour.json", {"edges": {}, "event_types": list})
        with self.reading("behaviour.json"):
            return EventFeatures.from_json(document)

    def encode_events(self, log: Log) -> list[NDArray[Any]]:
        """Each input of events that the network reads, flat as the log's items."""
        return encode_inputs(self.recipe.model, self.event_features, log)

    def start(
        self,
        recipe: Recipe,
        log: Log,
        metadata: Metadata | None,
        columns: Sequence[Column],
        event_features: EventFeatures | None,
        *,
        train: Histories,
        data: Path,
        device: torch.device,
        item_start: ItemStart | None = None,
    ) -> None:
        """Write all files known before the first step. config.json makes the folder a run, so it comes last."""
        config: dict[str, Any] = {
            "recipe": recipe.to_dict(),
            "data": {
                "file": data.name,
                "fingerprint": log.fingerprint,
                "users": len(log.user_ids),
                "items": len(log.vocabulary),
                "events": len(log.items),
                "last_event_at": log.last_event_at,
            },
            "environment": describe_environment(device),
        }
        counts = encode_counts(count_items(log.histories, len(log.vocabulary)))
        longest = recipe.model.max_length if isinstance(recipe.model, NetworkRecipe) else _COUNTED_LENGTH
        samples = _choose_samples(log, longest)
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)  # not before all else is known to work
        write_whole(self.path / "vocabulary.txt", log.vocabulary.to_bytes())
        write_whole(self.path / "counts.npy", counts)
        if isinstance(recipe.model, NetworkRecipe):
            write_whole(self.path / "trained.npy", encode_counts(count_items(train, len(log.vocabulary))))
        write_json(self.path / "samples.json", samples)
        if metadata is not None:
            write_json(self.path / "metadata.json", metadata)
        if item_start is not None:
            write_whole(self.path / ITEM_VECTORS, encode_arrays(item_start.rows))
            config["item_vectors"] = item_start.description
        if columns:
            write_json(self.path / "features.json", columns_to_json(columns))
        if event_features is not None:
            write_json(self.path / "behaviour.json", event_features.to_json())
        write_json(self.path / "config.json", config)

    def change_length(self, recipe: Recipe) -> None:
        """Continue with a recipe that differs only in epochs or seconds. Removes the results, which no longer hold."""
        (self.path / "results.json").unlink(missing_ok=True)
        write_json(self.path / "config.json", self.config | {"recipe": recipe.to_dict()})
        for read in ("config", "recipe"):
            self.__dict__.pop(read, None)

    def read_versions(self) -> list[str]:
        """The versions of the bundles that were made of this run."""
        if not (self.path / "published.json").is_file():
            return []
        return list(map(str, self._read_json("published.json", {"versions": list})["versions"]))

    def note_version(self, version: str) -> None:
        """Add a version to published.json."""
        versions = self.read_versions()
        if version not in versions:
            write_json(self.path / "published.json", {"versions": [*versions, version]})

    def read_measured_recipe(self) -> Recipe:
        """The recipe that the next training begins with: a refit's own has the epochs that were found to be enough."""
        if not (self.path / "retrained.json").is_file():
            return self.recipe
        document = self._read_json("retrained.json", {"recipe": {}})
        with self.reading("retrained.json"):
            return make_recipe(document["recipe"], stored_in=str(self.path))

    def append_epoch(self, epoch: Epoch) -> None:
        """Add a line to metrics.jsonl, leaving out what an earlier, lost try of this epoch wrote."""
        lines = [line for line in self.read_epochs() if line["epoch"] < epoch.epoch]
        text = "".join(json.dumps(line) + "\n" for line in [*lines, asdict(epoch)])
        write_whole(self.path / "metrics.jsonl", text.encode())

    def read_epochs(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        with self.reading(path.name):
            return [parse(line, EPOCH) for line in path.read_text().splitlines()] if path.exists() else []

    def _read_json(self, name: str, shape: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - a document
        with self.reading(name):
            return parse((self.path / name).read_text(), shape)

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Raise RunError, naming the file, where it is missing or what is read from it is damaged."""
        try:
            yield
        except FileNotFoundError as error:
            raise RunError(f"{self.path / name} is missing") from error
        except _FAULTS as error:
            raise RunError(f"{self.path / name} is not what a run writes: {error}") from error


def _choose_samples(log: Log, max_length: int) -> list[list[int]]:
    """Histories of all lengths, the shortest and the longest among them, a little beyond the network's window."""
    histories = log.histories
    by_length = np.argsort(histories.lengths, kind="stable")
    rows = by_length[np.unique(np.linspace(0, len(by_length) - 1, _SAMPLES).astype(int))]
    return [histories[row][-(max_length + 8) :].tolist() for row in rows]
