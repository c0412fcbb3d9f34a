"""`fit --tensorboard` and `--mlflow`: what they are told is what the run's own files say."""

import json
import sys

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from training.cli import main
from training.errors import RunError
from training.fit import fit as fitting
from training.runs.progress import Progress
from training.runs.run import Run
from training.tracking import mlflow_run

RECIPE = "[model]\nmax_length = 6\nwidth = 8\nlayers = 1\n[train]\ndevice = 'cpu'\nepochs = 2\nbatch_size = 16\n"


@pytest.fixture
def fit(tmp_path, cycle_csv, monkeypatch):
    """A function: fit a small recipe on the ring's log with more options. MLflow's store is a folder."""
    (tmp_path / "small.toml").write_text(RECIPE)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def run(*more, out="run"):
        return main(
            ["fit", str(tmp_path / "small.toml"), "--data", str(cycle_csv), "--out", str(tmp_path / out), *more]
        )

    return run


@pytest.fixture
def uri(tmp_path):
    """Where MLflow's runs lie."""
    return (tmp_path / "mlruns").as_uri()


def find_runs(client):
    """The runs of the experiment that nextitem has unless told otherwise."""
    experiment = client.get_experiment_by_name("nextitem")
    assert experiment
    return client.search_runs([experiment.experiment_id])


def read_history(client, run_id, name):
    """The steps and values of a metric."""
    return [(metric.step, metric.value) for metric in client.get_metric_history(run_id, name)]


def test_both_are_told_what_the_run_holds(tmp_path, fit, uri):
    """Epochs by updates, the test, and the recipe as parameters; the run has an experiment and ends."""
    assert fit("--tensorboard", "--mlflow", uri) == 0
    run = Run.open(tmp_path / "run")
    lines, results = run.read_epochs(), run.read_results()
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    client = MlflowClient(tracking_uri=uri)
    [theirs] = find_runs(client)
    assert json.loads((tmp_path / "run" / "mlflow.json").read_text()) == {"uri": uri, "run_id": theirs.info.run_id}
    assert (theirs.info.run_name, theirs.info.status) == ("run", "FINISHED")
    told = {
        "train/epoch_loss": [line["loss"] for line in lines],
        "train/learning_rate": [line["learning_rate"] for line in lines],
        "train/tokens_per_second": [line["tokens_per_second"] for line in lines],
        "validation/NDCG@10": [line["validation"]["NDCG@10"] for line in lines],
        "epoch": [1, 2],
        "test/NDCG@10": [results["models"]["bert4rec"]["NDCG@10"]["value"]],
        "kept_epoch": [results["kept_epoch"]],
    }
    for name, values in told.items():
        steps = [2, 4][-len(values) :]  # 24 histories, 16 a batch
        scalars = events.Scalars(name)
        assert [scalar.step for scalar in scalars] == steps
        assert [scalar.value for scalar in scalars] == pytest.approx(values, rel=1e-6)
        assert read_history(client, theirs.info.run_id, name.replace("@", "_at_")) == list(
            zip(steps, values, strict=True)
        )
    assert theirs.data.params["model.width"] == "8"
    assert theirs.data.params["train.mask_count"] == "null"
    assert theirs.data.params["log.fingerprint"] == run.config["data"]["fingerprint"]
    assert "_hparams_/session_start_info" in events.summary_metadata


def test_a_run_that_goes_on_stays_one_run(tmp_path, fit, uri):
    """Longer with --resume: the same run of MLflow, all epochs in both, none twice."""
    assert fit("--tensorboard", "--mlflow", uri) == 0
    assert fit("--tensorboard", "--mlflow", uri, "--resume", "--set", "train.epochs=3") == 0
    client = MlflowClient(tracking_uri=uri)
    [theirs] = find_runs(client)
    assert read_history(client, theirs.info.run_id, "epoch") == [(2, 1), (4, 2), (6, 3)]
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [(scalar.step, scalar.value) for scalar in events.Scalars("epoch")] == [(2, 1), (4, 2), (6, 3)]


def test_a_stopped_and_a_failed_run_say_so(tmp_path, fit, uri, monkeypatch):
    """KILLED after a stop, FAILED after an error; the experiment has the name that MLflow's own variable says."""
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "other")
    client = MlflowClient(tracking_uri=uri)
    for ends, status in ((lambda *_, **__: Progress(), "KILLED"), (_fail, "FAILED")):
        with monkeypatch.context() as patch:
            patch.setattr(fitting, "train_run", ends)
            assert fit("--mlflow", uri, out=status) != 0
        run_id = json.loads((tmp_path / status / "mlflow.json").read_text())["run_id"]
        assert client.get_run(run_id).info.status == status
        assert client.get_experiment(client.get_run(run_id).info.experiment_id).name == "other"


def _fail(*_, **__):
    raise RunError("as it happens")


def test_nobody_who_listens_is_an_error_at_the_start(fit, monkeypatch, capsys):
    """In a sentence with the URI, before the first step."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert fit("--mlflow", "http://127.0.0.1:9") == 2
    told = capsys.readouterr().err
    assert "nextitem-train: --mlflow http://127.0.0.1:9: " in told
    assert "Traceback" not in told


def test_a_server_that_goes_away_stops_no_training(fit, uri, monkeypatch, capsys):
    """One warning; the run ends as without it, and what waits is sent when the server is back."""
    sent: list[list[str] | None] = []

    def log_batch(self, run_id, metrics=(), params=()):  # noqa: ARG001 - the client's signature
        if params:
            return
        if len(sent) < 2:
            sent.append(None)
            raise MlflowException("gone\nfar away")
        sent.append([metric.key for metric in metrics])

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    monkeypatch.setattr(mlflow_run, "_AFTER_A_FAULT_SECONDS", 0.0)
    assert fit("--mlflow", uri) == 0
    assert capsys.readouterr().err.count("MLflow does not answer, and the training goes on: gone\n") == 1
    assert sent[-1]
    assert sent[-1].count("validation/NDCG_at_10") == 2
    assert "test/NDCG_at_10" in sent[-1]


def test_without_the_flags_neither_library_is_needed(fit, monkeypatch):
    """As where the extra is not installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] in {"tensorboard", "mlflow"} or name.startswith(
            ("torch.utils.tensorboard", "training.tracking.")
        ):
            monkeypatch.delitem(sys.modules, name)
    for name in ("tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    assert fit() == 0
    assert fit("--tensorboard", out="other") == 1
