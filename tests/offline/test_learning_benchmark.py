"""The curves of learning: their marks, when they cross what papers print, and that nothing is measured twice."""

import io
import json
from pathlib import Path

import pytest

from benchmarks.training.learning import __main__ as command
from benchmarks.training.learning.crossings import Crossing, describe_crossings, find_crossing, list_published
from benchmarks.training.learning.kept import OtherTerms, Results, begin_curve
from benchmarks.training.learning.picture import draw_learning
from benchmarks.training.learning.plan import make_terms, plan_marks, plan_turns
from benchmarks.training.learning.table import format_curves, format_published
from benchmarks.training.systems import nextitem
from benchmarks.training.systems.meter import Entry
from benchmarks.training.terms import Terms, cut_material
from training.benchmark.published import LOGS
from training.data.split import leave_one_out
from training.errors import RecipeError
from training.recipe_models import TransformerRecipe

RECIPES = {name: str(Path(command.__file__).parent / "recipes" / f"{name}.toml") for name in ("bert4rec", "sasrec")}
SIZES = Terms(max_length=50, marks=(30.0, 60.0))
TURN = plan_turns(["sasrec"], ["recbole"], sizes=SIZES, recipes=RECIPES)[0]
LOG = {"file": "log.txt", "fingerprint": LOGS["ml-1m"], "users": 3}


def make_check(cpu_seconds, ndcg):
    """What a system reports at a mark."""
    found = {"HR@10": 2 * ndcg, "NDCG@10": ndcg}
    return {"cpu_seconds": cpu_seconds, "seconds": cpu_seconds, "steps": int(cpu_seconds), "tokens": 1,
            "validation": found, "test": found}  # fmt: skip


def make_curve(system, network, points, *, ended=True, marks=(60.0, 120.0, 240.0)):
    """A curve as the results hold it."""
    checks = [make_check(*point) for point in points]
    return {"system": system, "network": network, "terms": {"marks": list(marks)}, "ended": ended, "checks": checks}


@pytest.mark.parametrize(
    ("points", "crossing"),
    [
        ([(10, 0.0), (20, 0.1), (40, 0.3)], Crossing(30.0, 20)),
        ([(10, 0.0), (20, 0.2)], Crossing(20.0, 10)),
        ([(10, 0.25), (20, 0.1)], Crossing(10, None)),
        ([(10, 0.1), (20, 0.3), (30, 0.1), (40, 0.4)], Crossing(15.0, 10)),
        ([(10, 0.1), (20, 0.19)], None),
        ([], None),
    ],
)
def test_a_crossing_lies_on_the_line_between_two_points(points, crossing):
    """The first one counts; a curve that begins above has crossed by its first point; some never do."""
    found = find_crossing(points, 0.2)
    assert (found is None) == (crossing is None)
    if found and crossing:
        assert found.at == pytest.approx(crossing.at)
        assert found.after == crossing.after


def test_the_rows_are_of_networks_under_p2_on_that_log():
    """The lowest first; of a log that nobody published on there are none."""
    rows = list_published(LOGS["ml-1m"])
    assert [(row.model, row.height) for row in rows][:2] == [("SASRec", 0.1341), ("BERT4Rec", 0.1537)]
    assert [row.height for row in rows] == sorted(row.height for row in rows)
    assert "POP" not in {row.model for row in rows}
    assert list_published("sha256:0") == []


def test_the_tables_say_when_and_who_did_not_arrive():
    """Minutes of CPU time; `at most` where nothing below was measured; how long was measured where nothing crossed."""
    curves = [
        make_curve("nextitem", "bert4rec", [(60.5, 0.1), (121.0, 0.14), (240.0, 0.16)]),
        make_curve("nextitem", "sasrec", [(60.5, 0.19)]),
        make_curve("recbole", "sasrec", [(130.0, 0.02)], ended=False),
    ]
    text = format_curves(curves)
    assert "| nextitem BERT4Rec | 0.1000 | 0.1400 | 0.1600 | 0.3200 / 0.1600 | 240 |" in text
    assert "| RecBole SASRec * |  | 0.0200 |  | 0.0400 / 0.0200 | 130 |" in text
    assert "stopped before its end" in text
    assert "stopped" not in format_curves(curves[:2])
    rows = [row for row in list_published(LOGS["ml-1m"]) if row.height == 0.1537]
    published = describe_crossings(curves, rows)
    assert published[0]["crossed"][0]["cpu_minutes"] == pytest.approx((121 + 119 * 0.685) / 60)
    table = format_published({"curves": curves, "published": published})
    assert table.splitlines()[-1].endswith("| 0.1537 | 3.4 | at most 1.0 | not within 2.2 |")
    assert "no published rows" in format_published({"curves": curves, "published": []})


def test_a_picture_is_drawn_of_any_curves():
    """Without one, with an empty one, and with published rows."""
    curves = [make_curve("nextitem", "bert4rec", [(60.0, 0.1), (120.0, 0.2)]), make_curve("recbole", "sasrec", [])]
    published = describe_crossings(curves, list_published(LOGS["ml-1m"]))
    assert draw_learning({"curves": [], "published": []}).startswith(b"\x89PNG")
    assert draw_learning({"curves": curves, "published": published}).startswith(b"\x89PNG")


def test_marks_halve():
    """The last one is the whole budget."""
    assert plan_marks(10, 3) == (150.0, 300.0, 600.0)


def test_peers_keep_their_defaults_and_ours_its_recipe():
    """Sizes and marks are equal; ours trains by its recipe, for as long as the last mark."""
    theirs = make_terms("sasrec", "recbole", SIZES, RECIPES["sasrec"])
    assert (theirs.max_length, theirs.marks, theirs.recipe) == (50, SIZES.marks, None)
    assert theirs.batch_size is theirs.learning_rate is theirs.dropout is theirs.mask_probability is None
    ours = make_terms("sasrec", "nextitem", SIZES, RECIPES["sasrec"])
    recipe = nextitem.choose_recipe(ours)
    assert isinstance(recipe.model, TransformerRecipe)
    assert (recipe.model.name, recipe.model.max_length, recipe.model.heads) == ("sasrec", 50, 2)
    assert (recipe.train.budget_seconds, recipe.train.batch_size) == (60.0, 32)
    with pytest.raises(RecipeError, match="is of sasrec"):
        make_terms("bert4rec", "nextitem", SIZES, RECIPES["sasrec"])


@pytest.mark.parametrize("network", ["bert4rec", "sasrec"])
def test_ours_learns_by_its_recipe(network, cycles, make_log):
    """It is measured on validation and test, ends with its epochs, and knows a ring of items by then."""
    log = make_log(cycles)
    material = cut_material(leave_one_out(log), 12, users=20, seed=1)
    sizes = Terms(max_length=6, width=16, marks=(0.001, 500.0))
    turn = make_terms(network, "nextitem", sizes, RECIPES[network])
    assert turn.recipe
    turn.recipe["train"].update(epochs=60, warmup_steps=5)
    lines = io.StringIO()
    entry = Entry(turn, material, lines)
    nextitem.run_trainer(turn, material, entry)
    entry.meter.finish()
    first, last = entry.meter.checks
    assert 0 < entry.prepare_cpu_seconds < first["cpu_seconds"] < last["cpu_seconds"] < 500
    assert (first["steps"], last["steps"]) == (1, 60)
    assert last["test"]["NDCG@10"] > 0.6 > first["test"]["NDCG@10"]
    assert '"event": "check"' in lines.getvalue()


class Bench:
    """The command over a small log, its systems replaced by planted ones."""

    def __init__(self, folder, monkeypatch):
        self._folder, self._monkeypatch = folder, monkeypatch
        self.log, self.out = folder / "log.txt", folder / "out" / "learning.json"
        self.log.write_text("".join(f"u{user} i{(user + step) % 7}\n" for user in range(5) for step in range(6)))
        for system in ("rectools", "recbole"):
            python = folder / system / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()
        self.ran: list[tuple[str, str]] = []
        self.stops_at = ("", "")
        monkeypatch.setattr(command, "run_turn", self.run_turn)

    def run_turn(self, name, python, folder, *, threads, on_line):
        """Two checks, or Ctrl-C after the first."""
        del python, threads
        terms = json.loads((folder / "terms.json").read_text())
        self.ran.append((terms["network"], name))
        on_line({"event": "check", **make_check(terms["marks"][0], 0.1)})
        if self.ran[-1] == self.stops_at:
            raise KeyboardInterrupt
        on_line({"event": "check", **make_check(terms["marks"][-1], 0.2)})
        return {"event": "end", "contestant": name, "version": "1", "checks": []}

    def __call__(self, *options):
        """Call the command. Returns its status, whom it ran, and the results."""
        words = [str(self.log), "--environments", str(self._folder), "--marks", "2", "--out", str(self.out), *options]
        self._monkeypatch.setattr("sys.argv", ["learning", *words])
        self.ran.clear()
        return command.main(), list(self.ran), json.loads(self.out.read_text())


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The command, to be called with its options."""
    return Bench(tmp_path, monkeypatch)


def test_what_was_measured_is_kept(bench, capsys):
    """Ctrl-C leaves the marks that were passed; the next call measures that system again, and none that had ended."""
    bench.stops_at = ("bert4rec", "recbole")
    status, ran, held = bench("--minutes", "1")
    assert (status, ran[-1]) == (130, bench.stops_at)
    assert [(curve["system"], curve["ended"], len(curve["checks"])) for curve in held["curves"]] == [
        ("nextitem", True, 2),
        ("rectools", True, 2),
        ("recbole", False, 1),
    ]
    assert bench.out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    bench.stops_at = ("", "")
    status, ran, held = bench("--minutes", "1")
    assert (status, ran) == (0, [("bert4rec", "recbole"), *(("sasrec", name) for name in command.OURS_AND_PEERS)])
    assert all(curve["ended"] for curve in held["curves"])
    assert "| RecBole SASRec |" in capsys.readouterr().out
    assert bench("--minutes", "1")[1] == []
    assert " log.txt --environments " in held["curves"][0]["command"]


def test_other_terms_are_refused_until_asked_for(bench, capsys):
    """Another bound would make curves that do not compare; --anew measures the systems named again, no others."""
    bench("--minutes", "1", "--networks", "sasrec")
    status, ran, _ = bench("--minutes", "2", "--networks", "sasrec")
    assert (status, ran) == (2, [])
    assert "other terms (recipe, marks)" in capsys.readouterr().err
    status, ran, held = bench("--minutes", "2", "--networks", "sasrec", "--systems", "recbole", "--anew")
    assert (status, ran, len(held["curves"])) == (0, [("sasrec", "recbole")], 3)


def test_results_of_another_log_are_left_alone(tmp_path):
    """And so is a file that holds something else."""
    path = tmp_path / "learning.json"
    results = Results(path, LOG)
    results.keep(begin_curve(TURN))
    assert Results(path, LOG).curves == results.curves
    with pytest.raises(OtherTerms, match="another log"):
        Results(path, {**LOG, "users": 4})
    path.write_text("[]")
    with pytest.raises(OtherTerms, match="holds no curves"):
        Results(path, LOG)


def test_a_curve_gives_way_to_one_that_got_as_far(tmp_path):
    """A second try that stops sooner leaves the first one's marks; one that ends replaces it."""
    results = Results(tmp_path / "learning.json", LOG)
    first, second = begin_curve(TURN), begin_curve(TURN)
    first["checks"] = [make_check(30.0, 0.1), make_check(60.0, 0.2)]
    results.keep(first)
    second["checks"] = [make_check(31.0, 0.1)]
    results.keep(second)
    assert results.curves == [first]
    results.keep({**second, "ended": True})
    assert [curve["checks"] for curve in results.curves] == [second["checks"]]
    assert results.list_missing([TURN]) == []
