"""A log in which nothing but the time that has passed tells what follows."""

import json

import numpy as np
import pytest

from training.cli import main

KINDS = 8
SOON_S, LATE_S = 60, 10 * 86_400
RECIPE = (
    *("model.max_length=6", "model.width=16", "model.layers=1", "model.dropout=0.0", "model.event_dropout=0.0"),
    *("train.epochs=60", "train.batch_size=32", "train.learning_rate=0.01", "train.device=cpu", "train.keep=last"),
    *("train.patience=60", "train.loss=softmax", "train.negatives=null", "train.mask_probability=0.2"),
)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Six events a user: x, then what follows x soon or what follows it late, by a coin; an hour, and the next x."""
    draw = np.random.default_rng(5)
    lines = ["user,item,timestamp"]
    for user in range(256):
        time_s = 1_700_000_000 + int(draw.integers(10**6))
        for kind in draw.permutation(KINDS)[:3]:
            late = bool(draw.integers(2))
            lines.append(f"u{user:03},x{kind},{time_s}")
            time_s += LATE_S if late else SOON_S
            lines.append(f"u{user:03},{'late' if late else 'soon'}{kind},{time_s}")
            time_s += 3600
    path = tmp_path_factory.mktemp("gaps") / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("name", ["sasrec", "bert4rec"])
def test_only_who_knows_the_time_knows_the_answer(log, tmp_path, name):
    """Told it, nearly every first place is right; without it half of them at best, since a coin decided."""
    found = {}
    for told in ("true", "false"):
        chosen = (*RECIPE, f"model.name={name}", f"model.relative_time={told}")
        settings = [word for setting in chosen for word in ("--set", setting)]
        assert main(["fit", "bert4rec-small", "--data", str(log), "--out", str(tmp_path / told), *settings]) == 0
        results = json.loads((tmp_path / told / "results.json").read_text())
        found[told] = results["models"][name]["NDCG@10"]
    blind = (1 + 1 / np.log2(3)) / 2
    """Two of equal score: the first or the second place by a coin."""
    assert found["false"]["value"] < blind + 0.05
    assert found["true"]["value"] > 0.97
    assert found["true"]["low"] > found["false"]["high"]
