"""The papers' rows beside the benchmark's: whose log, which protocol, and whether they are reached."""

import pytest

from training.benchmark.cells import name_kind
from training.benchmark.published import LOGS, RECIPES, SOURCES, compare, find_sources
from training.benchmark.table import format_markdown
from training.evaluation.protocol import PROTOCOLS
from training.recipe import RECIPES as FILES
from training.recipe import read_recipe

ML_1M, BEAUTY = LOGS["ml-1m"], LOGS["beauty"]


def _measure(HR, NDCG, MRR, reach=0.01):
    values = {"HR@10": HR, "NDCG@10": NDCG, "MRR": MRR}
    return {name: {"value": value, "low": value - reach, "high": value + reach} for name, value in values.items()}


def _cell(model, metrics, fingerprint=ML_1M, protocol="P1", **more):
    return {
        "model": model,
        "kind": "user",
        "data": {"name": "films", "fingerprint": fingerprint, "users": 9, "items": 9, "events": 99},
        "protocol": protocol,
        "seed": 1,
        "questions": 9,
        "metrics": metrics,
        "training_seconds": 1.0,
        "parameters": 9,
        "ms_per_request": 0.1,
        "recipe": {"data": {"held_out_users": None}},
        **more,
    }


def test_every_row_is_of_a_recipe_and_a_protocol():
    """A row whose recipe was renamed would never be shown."""
    assert {recipe for recipes in RECIPES.values() for recipe in recipes} <= {
        path.stem for path in FILES.glob("*.toml")
    }
    for source in SOURCES:
        assert source.rows.keys() <= RECIPES.keys(), source.name
        assert source.protocol in PROTOCOLS
        assert source.fingerprint in LOGS.values()
        for row in source.rows.values():
            assert all(0 < number < 1 for number in row if number is not None)
            assert row[1] < row[0]
    assert find_sources(ML_1M, "P1")[0].rows["Caser"] == (0.6692, 0.4268, 0.3648)
    assert find_sources("sha256:of another log", "P1") == []


@pytest.mark.parametrize(
    ("metrics", "row", "word"),
    [
        ((0.60, 0.35, 0.30), (0.5946, 0.3439, 0.2891), "reached"),
        ((0.60, 0.35, 0.285), (0.5946, 0.3439, 0.2891), "within"),
        ((0.60, 0.35, 0.27), (0.5946, 0.3439, 0.2891), "below"),
        ((0.60, 0.35, 0.0), (0.5946, 0.3439, None), "reached"),
        ((0.59456, 0.35, 0.0), (0.5946, 0.3439, None), "reached"),
    ],
)
def test_a_row_is_reached_by_all_of_its_numbers(metrics, row, word):
    """One number below is not reached; one below the interval is below. Four digits are compared, as printed."""
    assert compare(_measure(*metrics), row) == word


def test_the_table_says_what_is_reached():
    """With its source, for the models that are there; another log has no such table."""
    better = {"by": 1.5, "tried": {}, "metrics": _measure(0.62, 0.36, 0.31)}
    cells = [
        _cell("fpmc", _measure(0.55, 0.33, 0.28), discounted=better),
        _cell("rules", _measure(0.57, 0.37, 0.33)),
    ]
    text = format_markdown(cells, {}, "picture.png")
    assert (
        "Beside Sun et al., BERT4Rec, CIKM 2019, table 2 (nobody's event before the test is held out there); " in text
    )
    assert "The event before the test trains, but everybody's." in text
    assert "| fpmc | FPMC: 0.5946 / 0.3439 / 0.2891 | below | reached |" in text
    assert "| fpmc | 1.5 | 0.6200 [0.6100, 0.6300] |" in text
    assert "Caser" not in text
    others = [{**cell, "data": {**cell["data"], "fingerprint": "sha256:other"}} for cell in cells]
    assert "Beside" not in format_markdown(others, {}, "picture.png")
    assert "Beside" not in format_markdown(cells[1:], {}, "picture.png")


def test_cpu_time_stands_where_all_seeds_have_it():
    """Cells measured before it was taken leave the column empty, and so does a mean with one of them."""
    metrics = _measure(0.55, 0.33, 0.28)
    taken = [_cell("fmc", metrics, training_cpu_seconds=cpu) | {"seed": cpu} for cpu in (3, 5)]
    assert "| 9 | 1.0 | 4.0 | 0.10 |" in format_markdown(taken, {}, "picture.png")
    assert "| 9 | 1.0 |  | 0.10 |" in format_markdown([*taken, _cell("fmc", metrics)], {}, "picture.png")


def test_a_printed_number_of_another_file_says_so():
    """The SASRec paper's Beauty has more users than the file at hand."""
    text = format_markdown([_cell("fmc", _measure(0.4, 0.3, 0.2), BEAUTY, "P7")], {}, "picture.png")
    assert "held out there; another file of the same reviews: 52,024 users, 57,289 items)" in text
    assert "| fmc | FMC: 0.3771 / 0.2477 | reached |" in text


@pytest.mark.parametrize(("held_out", "mark"), [(2048, "reached, on more events"), (None, "reached")])
def test_what_was_reached_on_more_events_says_so(held_out, mark):
    """A model that trained on events that the paper held out has reached no more than that, under both scores."""
    recipe = {"data": {"held_out_users": held_out}}
    better = {"by": 1.0, "tried": {}, "metrics": _measure(0.9, 0.8, 0.7)}
    cell = _cell("markov", _measure(0.9, 0.8, 0.7), BEAUTY, "P7") | {"model": "fmc", "discounted": better}
    text = format_markdown([cell | {"recipe": recipe}], {}, "picture.png")
    assert f"| fmc | FMC: 0.3771 / 0.2477 | {mark} | {mark} |" in text
    assert "(everybody's event before the test is held out there; another file" in text
    below = cell | {"metrics": _measure(0.1, 0.05, 0.05), "recipe": recipe}
    assert f"| below | {mark} |" in format_markdown([below], {}, "picture.png")


def test_each_published_row_stands_beside_models_without_rules():
    """No paper adds rules to a network: a recipe that does is of another kind, and in no row."""
    for recipes in RECIPES.values():
        assert all(name_kind(read_recipe(recipe, [])) != "hybrid" for recipe in recipes)
    assert name_kind(read_recipe("sasrec-rules-ml-1m", [])) == "hybrid"
    fair = {source.name: source for source in find_sources(BEAUTY, "P2")}
    rectools = next(source for name, source in fair.items() if name.startswith("RecTools"))
    assert rectools.rows["BERT4Rec"] == (0.0434, 0.0242, None)
    assert rectools.held_out_users == 2048


def test_rows_of_an_older_evaluation_are_marked(make_cells):
    """What counts, and what has rules, is marked; a network alone only where targets are known to repeat."""
    text = format_markdown(make_cells(share=0.0), {}, "picture.png")
    assert [line.split(" | ")[0] for line in text.splitlines() if "†" in line] == [
        "| old-rules †",
        "| old-hybrid †",
        "† measured before repeated targets and a user's own history were treated as they are now (docs/decisions/0030 "
        "and 0031).",
    ]
    text = format_markdown(make_cells(share=0.25), {}, "picture.png")
    assert "| old-network † | transformer | 1 | all |" in text
    assert "| new-rules | counter | 1 | all |" in text
    assert "25.0% of the targets are items that their user had met before. Over the others:" in text
    assert "| new-rules | 0.8000 [0.7900, 0.8100] |" in text


@pytest.fixture
def make_cells():
    """A maker of four cells: rules of today, whose targets repeat so often, and three of before."""

    def make(share):
        apart = {"share": share, "new": {"users": 9, "metrics": _measure(0.8, 0.5, 0.4)}, "repeated": {"users": 0}}
        today = {"evaluation": 2, "targets": apart, "kind": "counter"}
        return [
            _cell("new-rules", _measure(0.6, 0.5, 0.4), **today),
            _cell("old-rules", _measure(0.6, 0.4, 0.4), kind="counter"),
            _cell("old-hybrid", _measure(0.6, 0.3, 0.4), kind="hybrid"),
            _cell("old-network", _measure(0.6, 0.2, 0.4), kind="transformer"),
        ]

    return make
