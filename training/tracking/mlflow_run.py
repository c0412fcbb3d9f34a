"""MLflow: a run on a tracking server or in a database, its parameters, and metrics by the number of updates.

The run of a training that goes on is the one that RUN/mlflow.json names. A server that cannot be reached is an error
before the first step and a warning after it: no training of hours ends because nobody listens.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunStatus
from mlflow.exceptions import MlflowException

from training.errors import InputError
from training.json_files import write_json
from training.runs.progress import Epoch, Progress
from training.runs.run import Run
from training.tracking.metrics import Numbers, list_epoch, list_parameters, list_results

FILE = "mlflow.json"
_EXPERIMENT = "nextitem"
_EVERY_SECONDS = 10.0
"""Losses between two epochs wait for one another, since each message is a request."""
_AFTER_A_FAULT_SECONDS = 60.0
_MOST_WAITING = 1000
_MOST_PARAMETERS = 100
"""What MLflow takes at once."""
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""MLflow itself would ask for minutes, and the training would wait."""
_FAULTS = (MlflowException, OSError)


class MlflowTracker:
    """Tells MLflow what a training tells. Raises InputError where the run cannot be begun."""

    def __init__(self, uri: str, run: Run) -> None:
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        self._run = run
        self._waiting: list[Metric] = []
        self._next_s = 0.0
        self._updates = 0
        self._status = RunStatus.KILLED
        self._warned = False
        try:
            self._client = MlflowClient(tracking_uri=uri)
            self._id = self._go_on(uri) or self._begin(uri)
        except _FAULTS as error:
            raise InputError(f"--mlflow {uri}: {str(error).splitlines()[0]}") from error

    def __enter__(self) -> "MlflowTracker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send()
        status = RunStatus.FAILED if kind is not None and issubclass(kind, Exception) else self._status
        try:
            self._client.set_terminated(self._id, RunStatus.to_string(status))
        except _FAULTS as fault:
            self._warn(fault)

    def note_step(self, progress: Progress, loss: float) -> None:
        self._keep({"train/loss": loss}, progress.updates)
        if time.monotonic() >= self._next_s:
            self._send()

    def note_epoch(self, epoch: Epoch, progress: Progress) -> None:
        self._keep(list_epoch(epoch), progress.updates)
        if not self._warned or time.monotonic() >= self._next_s:
            self._send()

    def note_results(self, results: Mapping[str, Any]) -> None:
        self._keep(list_results(results, self._run.recipe.name), self._updates)
        self._status = RunStatus.FINISHED

    def _keep(self, numbers: Numbers, updates: int) -> None:
        now_ms = int(time.time() * 1000)
        self._updates = updates
        self._waiting += [Metric(_name(key), float(value), now_ms, updates) for key, value in numbers.items()]
        del self._waiting[:-_MOST_WAITING]

    def _send(self) -> None:
        self._next_s = time.monotonic() + _EVERY_SECONDS
        try:
            self._client.log_batch(self._id, metrics=self._waiting)
        except _FAULTS as fault:
            self._next_s = time.monotonic() + _AFTER_A_FAULT_SECONDS
            self._warn(fault)
        else:
            self._waiting, self._warned = [], False

    def _warn(self, fault: Exception) -> None:
        if not self._warned:
            text = (str(fault).splitlines() or [type(fault).__name__])[0]
            sys.stderr.write(f"WARNING: MLflow does not answer, and the training goes on: {text}\n")
        self._warned = True

    def _go_on(self, uri: str) -> str | None:
        """The run that this training has there already, if it has one."""
        path = self._run.path / FILE
        if not path.is_file():
            return None
        with self._run.reading(FILE):
            begun = json.loads(path.read_text(encoding="utf-8"))
            if begun["uri"] != uri:
                return None
            run_id = str(begun["run_id"])
        self._client.update_run(run_id, status=RunStatus.to_string(RunStatus.RUNNING))
        return run_id

    def _begin(self, uri: str) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment is not None else self._client.create_experiment(name)
        begun = self._client.create_run(experiment_id, run_name=self._run.path.name)
        parameters = [Param(key, _show(value)) for key, value in list_parameters(self._run.recipe).items()]
        data = self._run.config["data"]
        parameters += [
            Param(f"log.{key}", _show(data[key])) for key in ("file", "fingerprint", "users", "items", "events")
        ]
        for start in range(0, len(parameters), _MOST_PARAMETERS):
            self._client.log_batch(begun.info.run_id, params=parameters[start : start + _MOST_PARAMETERS])
        write_json(self._run.path / FILE, {"uri": uri, "run_id": begun.info.run_id})
        return str(begun.info.run_id)


def _name(key: str) -> str:
    """MLflow's names have no @."""
    return key.replace("@", "_at_")


def _show(value: object) -> str:
    return "null" if value is None else str(value)
