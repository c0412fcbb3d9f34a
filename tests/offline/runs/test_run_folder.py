"""A run's folder that somebody or something damaged: every fault is one sentence that names the file."""

import json

import numpy as np
import pytest

from training import old_names
from training.cli import main
from training.errors import RunError
from training.old_names import OLD_KEYS
from training.runs.run import Run

RECIPE = "[model]\nmax_length = 5\nwidth = 8\nlayers = 1\n[train]\ndevice = 'cpu'\nepochs = 1\n"
READERS = {
    "config.json": lambda run: run.recipe,
    "vocabulary.txt": lambda run: run.vocabulary,
    "counts.npy": Run.read_counts,
    "samples.json": Run.read_samples,
    "metadata.json": Run.read_metadata,
    "metrics.jsonl": Run.read_epochs,
    "test_ranks.npz": Run.read_ranks,
    "results.json": Run.read_results,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The files of a finished run by name."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(RECIPE)
    rows = [f"u{user},i{(user + step) % 12:02},{1_700_000_000 + step}" for user in range(9) for step in range(8)]
    (folder / "log.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")
    (folder / "items.csv").write_text("item,title\ni01,One\n")
    log, items = str(folder / "log.csv"), str(folder / "items.csv")
    assert main(["fit", str(folder / "small.toml"), "--data", log, "--items", items, "--out", str(folder / "run")]) == 0
    return {path.name: path.read_bytes() for path in (folder / "run").iterdir() if path.is_file()}


@pytest.fixture
def run(tmp_path, finished):
    """A run of its own to damage."""
    for name, content in finished.items():
        (tmp_path / name).write_bytes(content)
    return Run.open(tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_whole_run_reads(run, name):
    """Nothing that a run writes is refused."""
    assert READERS[name](run) is not None


@pytest.mark.parametrize("damage", ["empty", "half", "zeros", "text", "list", "deep"])
@pytest.mark.parametrize("name", READERS)
def test_no_damage_goes_unnamed(run, name, damage):
    """Files cut, emptied, overwritten or of another kind are refused by name, whoever reads them."""
    content = (run.path / name).read_bytes()
    (run.path / name).write_bytes(
        {
            "empty": b"" if name != "metrics.jsonl" else b"\n",  # without a line no epoch is complete
            "half": content[: len(content) // 2] if name != "vocabulary.txt" else content[: len(content) // 2] + b" ",
            "zeros": b"\0" * len(content),
            "text": b"never was it so\n\n",
            "list": b"[[0]]\n" if name != "vocabulary.txt" else b"\xff\n",
            "deep": b"[" * 100_000 if name != "vocabulary.txt" else b"twice\ntwice\n",
        }[damage]
    )
    with pytest.raises(RunError, match=f"{name} is not what a run writes: ."):
        READERS[name](run)


def _save(path, write, *arrays, **named):
    with path.open("wb") as file:
        write(file, *arrays, **named)


@pytest.mark.parametrize(
    "counts",
    [
        np.ones(11, dtype=np.int64),
        np.ones((12, 1), dtype=np.int64),
        np.ones(12, dtype=np.int32),
        np.ones(12),
        -np.ones(12, dtype=np.int64),
    ],
    ids=["too few", "two axes", "other size", "no whole numbers", "negative"],
)
def test_counts_are_one_for_each_item(run, capsys, counts):
    """Counts of another catalogue or kind would order popular items wrongly: nothing is published with them."""
    _save(run.path / "counts.npy", np.save, counts)
    bundles = run.path / "bundles"
    assert main(["publish", str(run.path), "--out", str(bundles)]) == 2
    message = "counts.npy is not what a run writes: not one int64 of at least 0 for each item\n"
    assert capsys.readouterr().err.endswith(message)
    assert not bundles.exists()


@pytest.mark.parametrize("other", [np.zeros(8, dtype=np.int64), np.full(9, -1), np.zeros(9), np.zeros((9, 1), int)])
def test_ranks_are_two_numbers_a_question(run, other):
    """Ranks that do not pair would be compared with others' users."""
    _save(run.path / "test_ranks.npz", np.savez, greater=np.zeros(9, dtype=np.int64), ties=other)
    with pytest.raises(RunError, match=r"test_ranks\.npz is not what a run writes: not two numbers of at least 0"):
        run.read_ranks()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", lambda it: it.pop("data"), "the document lacks data"),
        ("config.json", lambda it: it["data"].update(fingerprint=7), "fingerprint has a value of the wrong type"),
        ("config.json", lambda it: it["recipe"]["train"].update(epochs=0), "train.epochs must be at least 1"),
        ("config.json", lambda it: it.update(recipe=[]), "recipe holds no keys"),
        ("results.json", lambda it: it.pop("models"), "the document lacks models"),
        ("results.json", lambda it: it["models"].pop("bert4rec"), "models lacks bert4rec"),
        ("results.json", lambda it: it["models"]["pop"].update(MRR=0.5), "MRR holds no keys"),
        ("results.json", lambda it: it["models"]["bert4rec"]["MRR"].update(low=float("nan")), "NaN is no number"),
        ("results.json", lambda it: it.update(finished_at="yesterday"), "Invalid isoformat"),
        ("results.json", lambda it: it.update(kept_epoch=True), "kept_epoch has a value of the wrong type"),
        ("samples.json", lambda it: it[0].append(13), "index 13 is no item"),
        ("metrics.jsonl", lambda it: it["validation"].pop("MRR"), "validation lacks MRR"),
    ],
)
def test_documents_hold_what_is_read_from_them(run, name, change, message):
    """A key that is gone or of another kind is named with its file."""
    document = json.loads((run.path / name).read_text())
    change(document)
    (run.path / name).write_text(json.dumps(document))
    with pytest.raises(RunError, match=f"{name} is not what a run writes: .*{message}"):
        READERS[name](run)


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("metadata.json", "metrics.jsonl")])
def test_a_file_that_is_gone_is_missed(run, name):
    """What a run must have is missed by name; without results it is not finished."""
    (run.path / name).unlink()
    with pytest.raises(RunError, match="is not finished" if name == "results.json" else f"{name} is missing"):
        READERS[name](run)


def test_a_run_with_older_key_names_is_read_and_says_so(run, capsys, monkeypatch):
    """A config.json from before the keys were renamed gives the same recipe; one note names the run and the keys."""
    monkeypatch.setattr(old_names, "_announced", set())
    config, today = json.loads((run.path / "config.json").read_text()), run.recipe
    for section, renamed in OLD_KEYS.items():
        for old, new in renamed.items():
            if new in config["recipe"][section]:
                config["recipe"][section][old] = config["recipe"][section].pop(new)
    (run.path / "config.json").write_text(json.dumps(config))
    assert [Run.open(run.path).recipe for _ in range(2)] == [today, today]
    [note] = capsys.readouterr().err.splitlines()
    assert note.startswith(f"note: {run.path} holds older names, which stay readable: ")
    assert "model.network is now model.name" in note
