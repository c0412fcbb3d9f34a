"""A run as notebooks hold it: its numbers as frames, its lists, its report, and its bundle."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from nextitem.training.evaluating import Evaluation, evaluate_fitted
from nextitem.training.frames import Data, DataFile, ItemsFile
from nextitem.training.tables import tabulate
from training.data.item_features import find_title
from training.errors import InputError
from training.evaluation.protocol import SEED
from training.evaluation.results import format_results, format_verdict
from training.publish.publish import publish_run
from training.publish.recommend_offline import recommend
from training.recipe import DataRecipe, Recipe
from training.report.report import report_run
from training.runs.run import Run

_USER, _ITEM = "user", "item"


class FittedRun:
    """A run in a folder. `fit` and `open_run` make it."""

    def __init__(self, run: Run, file: DataFile | None) -> None:
        self._run, self._file = run, file

    @property
    def path(self) -> Path:
        """The folder: what `nextitem-train evaluate`, `recommend` and `publish` take."""
        return self._run.path

    @property
    def recipe(self) -> Recipe:
        """Every key that it was trained by."""
        return self._run.recipe

    @property
    def results(self) -> dict[str, Any]:
        """The content of results.json. Raises RunError while the run is not finished."""
        return self._run.read_results()

    @property
    def metrics(self) -> pl.DataFrame:
        """Test metrics of the model and of simple counters: columns model, metric, value, low, high (95 %)."""
        return tabulate(self.results["models"])

    @property
    def verdict(self) -> str:
        """Which model is best, and whether chance can explain it."""
        results = self.results
        return format_verdict(results["comparison"], results["users"]) if "comparison" in results else ""

    @property
    def epochs(self) -> pl.DataFrame:
        """A row an epoch: its loss, seconds and validation metrics. Empty for what counts."""
        lines = self._run.read_epochs()
        rows = [{**line, **line["validation"]} for line in lines]
        return pl.DataFrame(rows).drop("validation") if rows else pl.DataFrame()

    def evaluate(self, protocol: str | None = None, *, data: Data | None = None, seed: int = SEED) -> Evaluation:
        """Measure it again: by another protocol, on another log. Raises InputError where test events leak."""
        return evaluate_fitted(self._run, self._find(data), protocol=protocol, seed=seed)

    def recommend(
        self,
        users: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        k: int = 10,
        *,
        data: Data | None = None,
    ) -> pl.DataFrame:
        """The k best unseen items: columns user, rank, item, score, and title where `items` gave some.

        `users` are ids of the log (None: all), or histories by user that are in no log: {"me": ["50", "181"]}, oldest
        first. Items that the model does not know are left out of a history. Raises InputError.
        """
        if k < 1:
            raise InputError("k must be at least 1")
        if isinstance(users, str):
            raise InputError(f"users are a list of ids, not one text: [{users!r}]")
        if isinstance(users, Mapping):
            lists = self._recommend_for(users, k)
        else:
            named, file = None if users is None else list(map(str, users)), self._find(data)
            lists = recommend(self._run, file.path, self.recipe.data, named, k)
        return self._add_titles(lists)

    def report(self) -> Path:
        """Write report.html anew, and return its path."""
        return report_run(self._run, None if self._file is None else self._file.path)

    def publish(
        self,
        folder: str | os.PathLike[str],
        *,
        items: Data | None = None,
        neighbours: bool = False,
        rules: bool = False,
        similar: bool = False,
        candidate: bool = False,
        force: bool = False,
    ) -> Path:
        """Export it as a bundle under `folder`, whose champion it becomes, or with `candidate` on trial beside that.

        `neighbours` and `rules` add nearest sessions and sequential rules of the run's log, `similar` similar items.
        Returns the bundle's own folder. Raises TrainingError.
        """
        known = None if items is None else ItemsFile(items)
        log = self._find(None).path if neighbours or rules else None
        return publish_run(
            self._run,
            Path(folder),
            None if known is None else known.path,
            neighbours=log if neighbours else None,
            rules=log if rules else None,
            similar=similar,
            as_candidate=candidate,
            force=force,
        )

    def __str__(self) -> str:
        if not self._run.is_finished:
            return f"{self.recipe.name} in {self.path}, not finished"
        results = self.results
        return "\n".join(filter(None, (format_results(results, results["models"]), self.verdict, f"see {self.path}")))

    __repr__ = __str__

    def _find(self, data: Data | None) -> DataFile:
        if data is not None:
            return DataFile(data)
        if self._file is None:
            raise InputError(f"give data=, the log of {self.path}: this run was opened without it")
        return self._file

    def _recommend_for(self, histories: Mapping[str, Sequence[str]], k: int) -> pl.DataFrame:
        if self._run.event_features is not None:
            raise InputError(
                f"{self.recipe.name} reads more of each event than its item: give data=, a log with these users"
            )
        empty = [user for user, history in histories.items() if not len(history)]
        if empty or not histories:
            raise InputError(f"{empty[0]!r} has no history" if empty else "there are no histories")
        pairs = [(str(user), str(item)) for user, history in histories.items() for item in history]
        file = DataFile(pl.DataFrame(pairs, schema={_USER: pl.String, _ITEM: pl.String}, orient="row"))
        recipe = DataRecipe(timestamp_column="", split="none", ids=self.recipe.data.ids)
        return recommend(self._run, file.path, recipe, list(map(str, histories)), k)

    def _add_titles(self, lists: pl.DataFrame) -> pl.DataFrame:
        metadata = self._run.read_metadata() or {}
        titles = {item_id: title for item_id, entry in metadata.items() if (title := find_title(entry)) is not None}
        if not titles:
            return lists
        return lists.with_columns(
            pl.col("item").replace_strict(titles, default=None, return_dtype=pl.String).alias("title")
        )
