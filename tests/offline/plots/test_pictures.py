"""The pictures of runs: what the heat map averages, and what each picture says of itself."""

import numpy as np
import pytest
import torch
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from model.nets.registry import make_network
from training.cli import main
from training.errors import InputError
from training.evaluation.attention import measure_attention
from training.plots import attention_map, comparison, learning_curves
from training.plots.attention_map import draw_attention
from training.plots.comparison import shorten_names
from training.plots.learning_curves import draw_curves
from training.plots.style import to_png

V = 30


@pytest.fixture
def make_seer():
    """A maker of untrained networks with weights so large that they look at some tokens more than at others."""

    def make(name, max_length=16):
        torch.manual_seed(3)
        network = make_network(name, item_count=V, max_length=max_length, width=8, heads=2)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(std=0.5)
        return network.eval()

    return make


@pytest.fixture
def rows():
    """Histories of 7 to 22 items, 13 of them of 10 items or more."""
    draw = np.random.default_rng(1)
    return [draw.integers(1, V + 1, length).tolist() for length in range(7, 23)]


@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
def test_the_map_is_the_mean_of_single_users(make_seer, make_histories, rows, monkeypatch, name):
    """In batches, padded, the same as user by user; users with fewer than ten events do not count."""
    network = make_seer(name)
    monkeypatch.setattr("training.evaluation.attention._WEIGHTS_AT_ONCE", 5 * 2 * 2 * 16**2)
    found = measure_attention(network, make_histories(rows))
    assert (found.users, found.long_enough, found.questions) == (13, 13, 16)
    single = []
    for row in rows[3:]:
        ids = torch.tensor([[*row[-15:], V + 1]])
        with torch.inference_mode():
            weights = network.weigh(ids, torch.tensor([ids.shape[1]]))
        single.append(torch.cat(weights)[:, :, -10:, -10:].double().numpy())
    np.testing.assert_allclose(found.weights, np.mean(single, axis=0), rtol=1e-4, atol=1e-6)
    later = np.triu(np.ones((10, 10), dtype=bool), 1)
    assert (found.weights[..., later] == 0).all() == network.causal
    assert found.positions[-2:] == (["-2", "-1"] if network.causal else ["-1", "[mask]"])
    assert len(found.positions) == 10


@pytest.mark.parametrize(("name", "shown"), [("bert4rec", 6), ("sasrec", 5)])
def test_a_short_network_shows_all_that_it_sees(make_seer, make_histories, rows, name, shown):
    """With six tokens all six are shown; of a causal network the five that hold events, without [mask]'s share."""
    found = measure_attention(make_seer(name, max_length=6), make_histories(rows))
    assert found.weights.shape[-2:] == (shown, shown)
    assert (found.users, len(found.positions)) == (16, shown)
    sums = found.weights.sum(axis=-1)
    if name == "bert4rec":
        np.testing.assert_allclose(sums, 1, rtol=1e-5)
    else:
        assert (sums < 1).all()


def test_of_many_users_some_are_drawn(make_seer, make_histories, rows, monkeypatch):
    """Above the most that are averaged the same random ones are taken each time, and counted so."""
    monkeypatch.setattr("training.evaluation.attention.MOST_USERS", 4)
    network, histories = make_seer("bert4rec"), make_histories(rows)
    found = measure_attention(network, histories)
    assert (found.users, found.long_enough, found.questions) == (4, 13, 16)
    assert np.array_equal(found.weights, measure_attention(network, histories).weights)


def test_without_long_histories_there_is_no_map(make_seer, make_histories, rows):
    """Nine events at most: refused in a sentence."""
    with pytest.raises(InputError, match="no test history has 10 events of known items"):
        measure_attention(make_seer("sasrec"), make_histories(rows[:3]))


def _keep(monkeypatch, module) -> list[Figure]:
    """Figures as a module hands them over to become a PNG."""
    kept: list[Figure] = []

    def keep(figure):
        kept.append(figure)
        return to_png(figure)

    monkeypatch.setattr(module, "to_png", keep)
    return kept


@pytest.mark.parametrize("name", ["bert4rec", "sasrec"])
def test_the_heat_map_has_one_scale_and_says_whom_it_shows(make_seer, make_histories, rows, monkeypatch, name):
    """A panel a layer and head with the weights as they are, all of one scale, future hidden where it is not seen."""
    kept = _keep(monkeypatch, attention_map)
    network = make_seer(name)
    found = measure_attention(network, make_histories(rows))
    assert draw_attention(found, name).startswith(b"\x89PNG")
    (figure,) = kept
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title().partition(" (")[0] for axes in panels] == [
        f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)
    ]
    for axes, weights in zip(panels, found.weights.reshape(4, 10, 10), strict=True):
        (image,) = axes.images
        shown = image.get_array()
        assert isinstance(shown, np.ma.MaskedArray)
        assert np.array_equal(np.asarray(shown.data), weights)
        assert image.get_clim() == (0, found.weights.max())
        assert shown.mask.sum() == (45 if network.causal else 0)
        assert [label.get_text() for label in panels[0].get_yticklabels()] == found.positions
    caption = " ".join(figure.get_supxlabel().split())
    assert "all of the 13 users with 10 events or more, of 16 in all" in caption
    assert ("never looks ahead" in caption) == network.causal


def test_a_run_leaves_its_heat_map_and_draws_another_log(tmp_path, cycle_csv, capsys):
    """`fit` writes attention.png beside the curves, or says why not; `attention` draws it anew, the same bytes."""
    recipe = tmp_path / "small.toml"
    recipe.write_text("[model]\nmax_length = 5\nwidth = 8\nlayers = 1\n[train]\ndevice = 'cpu'\nepochs = 1\n")
    run, fit = tmp_path / "run", ["fit", str(recipe), "--data", str(cycle_csv), "--out"]
    assert main([*fit, str(run)]) == 0
    picture = tmp_path / "again.png"
    command = ["attention", str(run), "--out", str(picture)]
    assert main([*command, "--data", str(cycle_csv)]) == 0
    assert f"plot written to {picture}: 24 of 24 test histories" in capsys.readouterr().err
    assert picture.read_bytes() == (run / "attention.png").read_bytes()
    short = tmp_path / "short.csv"
    short.write_text("user,item,timestamp\nx,i01,1\nx,new,2\nx,i02,3\nx,i03,4\n")
    picture.unlink()
    assert main([*command, "--data", str(short)]) == 2
    shown = capsys.readouterr().err
    assert "1 events were left out" in shown
    assert "no test history has 5 events of known items" in shown
    assert not picture.exists()
    assert main([*fit, str(tmp_path / "long"), "--set", "model.max_length=20"]) == 0
    assert "attention.png was not written: no attention" in capsys.readouterr().err
    assert not (tmp_path / "long" / "attention.png").exists()


@pytest.mark.parametrize(
    ("keys", "title", "unit"),
    [
        ({}, "cross-entropy over all items", "loss, nats a masked item"),
        ({"loss": "gbce", "negatives": 256}, "gBCE over 256 negatives", "loss, nats a masked item"),
        (
            {"loss": "bce", "negatives": 1, "network": "sasrec"},
            "binary cross-entropy over 1 negatives",
            "loss, nats an item",
        ),
    ],
)
def test_curves_name_the_loss_that_was_trained(monkeypatch, small_recipe, keys, title, unit):
    """The axis says which loss and of what, and the kept epoch is marked."""
    kept = _keep(monkeypatch, learning_curves)
    epochs = [
        {"epoch": epoch, "loss": 1 / epoch, "validation": {"HR@10": 0.1, "NDCG@10": 0.1, "MRR": 0.1}}
        for epoch in (1, 2)
    ]
    draw_curves(epochs, 2, small_recipe(**keys))
    left, right = kept[0].axes
    assert title in left.get_title()
    assert left.get_ylabel() == unit
    assert list(np.asarray(left.lines[0].get_ydata())) == [1.0, 0.5]
    legend = right.get_legend()
    assert legend
    assert [text.get_text() for text in legend.get_texts()] == ["HR@10", "NDCG@10", "MRR", "kept: epoch 2"]


def test_names_are_as_short_as_tells_them_apart():
    """Last parts of paths, more of them where two are alike; what is too long loses its beginning."""
    assert shorten_names(["/long/way/to/one", "runs/two", "markov"]) == ["one", "two", "markov"]
    assert shorten_names(["a/x/run", "b/x/run", "pop"]) == ["a/x/run", "b/x/run", "pop"]
    (short,) = shorten_names(["r" * 40 + "end"])
    assert len(short) == 32
    assert short.startswith("…r")
    assert short.endswith("end")


def test_eight_runs_are_told_apart_without_colour_and_with(monkeypatch):
    """Each run has a colour and mark of its own, the same in both panels of intervals and in the legend."""
    kept = _keep(monkeypatch, comparison)
    names = [f"run{place}" for place in range(8)]
    metrics = {name: {"value": 0.2, "low": 0.1, "high": 0.4} for name in ("HR@10", "NDCG@10", "MRR")}
    document = {
        "protocol": "P2",
        "users": 10,
        "models": dict.fromkeys(names, metrics),
        "against": names[0],
        "differences": dict.fromkeys(names[1:], metrics),
        "epochs": {},
    }
    comparison.draw_comparison(document)
    (figure,) = kept
    looks = [(line.get_color(), line.get_marker()) for line in figure.legends[0].get_lines()]
    assert len(set(looks)) == 8
    test, difference = (
        [bar.lines[0] for bar in axes.containers if isinstance(bar, ErrorbarContainer)] for axes in figure.axes
    )
    assert [(line.get_color(), line.get_marker()) for line in test[:8]] == looks
    assert [(line.get_color(), line.get_marker()) for line in difference[:7]] == looks[1:]
