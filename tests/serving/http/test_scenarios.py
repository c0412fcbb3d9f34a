"""Scenarios in POST /recommend: fields from a file, under what the request has itself, read anew when it changes."""

import logging
from pathlib import Path

import pytest

from service.errors import ScenariosUnusable
from service.scenarios import live_scenarios

HOME = """
[home]
k = 4
filter = {field = "year", gte = 1996}
boosts = [{filter = {field = "genres", in = ["War"]}, add = 2.0}]
max_per = {field = "new", count = 3}
pins = [{item_id = "i08", rank = 4}]
return_metadata = ["year"]
"""
FIELDS = {
    "k": 4,
    "filter": {"field": "year", "gte": 1996},
    "boosts": [{"filter": {"field": "genres", "in": ["War"]}, "add": 2.0}],
    "max_per": {"field": "new", "count": 3},
    "pins": [{"item_id": "i08", "rank": 4}],
    "return_metadata": ["year"],
}
MANY = HOME + '[odd]\nfilter = {field = "colour", in = ["red"]}\n[wide]\ndiversity = 0.5\n'
COUNT = 'nextitem_scenario_recommendations_total{{scenario="{}",source="{}"}}'


@pytest.fixture
def file(tmp_path):
    """The file, with three scenarios."""
    path = tmp_path / "scenarios.toml"
    path.write_text(MANY)
    return path


@pytest.fixture
def served(make_client, filterable_bundle, file, monkeypatch):
    """A service that looks at the file for every request."""
    monkeypatch.setattr(live_scenarios, "RELOAD_S", 0)
    return make_client(bundle=filterable_bundle, scenarios=file)


def replace(file, text):
    """Another version of the file, as editors and deployments write it."""
    aside = file.with_name("aside")
    aside.write_text(text)
    aside.replace(file)


def drop(answer):
    """What of an answer does not change from one request to the next."""
    return {name: value for name, value in answer.items() if name not in ("recommendation_id", "took_ms", "scenario")}


def list_errors(response):
    """Pointers and codes of a 422."""
    assert response.status_code == 422, response.text
    return [(error["pointer"], error["code"]) for error in response.json()["errors"]]


def test_a_scenario_is_its_fields_sent(served):
    """The answer is that to the same fields, and says by which scenario it was made."""
    answer = served.recommend(items=["i02"], scenario="home")
    assert drop(answer) == drop(served.recommend(items=["i02"], **FIELDS))
    assert answer["scenario"]["name"] == "home"
    assert len(answer["scenario"]["rules"]) == 8
    assert (answer["items"][3]["item_id"], answer["count"]) == ("i08", 4)
    assert "scenario" not in served.recommend(items=["i02"], scenario=None)


@pytest.mark.parametrize(
    "own",
    [
        {"k": 7},
        {"filter": None},
        {"filter": {"field": "year", "lt": 1996}, "pins": []},
        {"boosts": []},
        {"max_per": None, "return_metadata": False},
        {"exclude_item_ids": ["i10"], "diversity": 0.0},
    ],
    ids=" ".join,
)
def test_what_the_request_has_counts(served, own):
    """Whole fields, null and empty ones among them."""
    answer = served.recommend(items=["i02"], scenario="home", **own)
    assert drop(answer) == drop(served.recommend(items=["i02"], **{**FIELDS, **own}))


def test_answers_are_counted_by_scenario_and_source(served):
    """From 0; a request without one counts for none."""
    before = served.counts()
    assert {before[COUNT.format(name, "model")] for name in ("home", "odd", "wide", "other")} == {0}
    served.recommend(items=["i02"], scenario="home")
    served.recommend(items=[], scenario="home")
    served.recommend(items=["i02"])
    counts = served.counts()
    assert (counts[COUNT.format("home", "model")], counts[COUNT.format("home", "popular")]) == (1, 1)
    assert sum(value for name, value in counts.items() if name.startswith("nextitem_scenario_recommendations")) == 2


def test_another_name_is_refused_with_those_that_there_are(served, client):
    """And without a file it is said where they come from."""
    response = served.post("/recommend", {"items": ["i02"], "scenario": "c4n4ry"})
    assert list_errors(response) == [("/scenario", "unknown_scenario")]
    assert response.json()["errors"][0]["detail"] == "must be a scenario of the service, which are: home, odd, wide"
    response = client.post("/recommend", {"items": ["i02"], "scenario": "c4n4ry"})
    assert list_errors(response) == [("/scenario", "unknown_scenario")]
    assert "--scenarios" in response.json()["errors"][0]["detail"]


def test_an_error_lists_some_names_of_many(served, file):
    """Two hundred characters of them, and how many more there are."""
    replace(file, "\n".join(f"[scenario-{number:02}]" for number in range(64)))
    response = served.post("/recommend", {"items": ["i02"], "scenario": "c4n4ry"})
    detail = response.json()["errors"][0]["detail"]
    assert detail.endswith("scenario-17 and 46 more")
    assert len(detail) < 350


def test_what_does_not_go_together_is_the_scenario_s(served):
    """Where the request did not have the field: its own faults are named as ever."""

    def fault(**fields):
        response = served.post("/recommend", {"items": ["i02"], **fields})
        return list_errors(response), response.json()["errors"][0]["detail"]

    errors, detail = fault(scenario="home", k=3)
    assert (errors, detail) == ([("/scenario", "range")], "the scenario's pins ranks must be at most k")
    errors, detail = fault(scenario="odd")
    assert errors == [("/scenario", "unknown_field")]
    assert detail.startswith("the scenario's filter must be a field to filter by, which are: ")
    errors, detail = fault(scenario="wide")
    assert errors == [("/scenario", "not_published")]
    assert "--similar" in detail
    assert fault(scenario="odd", filter={"field": "c4n4ry", "gt": 1})[0] == [("/filter/field", "unknown_field")]
    assert fault(scenario="home", k=0)[0][0] == ("/k", "range")
    assert fault(scenario="home", c4n4ry=1)[0] == [("", "extra_forbidden")]
    assert fault(scenario="home", pins=[{"item_id": "i01", "rank": 9}])[0] == [("/pins", "range")]


def test_a_batch_names_none(served):
    """Most scenarios have rules, and no request of a batch may."""
    response = served.post("/recommend/batch", {"requests": [{"items": ["i02"], "scenario": "home"}]})
    assert list_errors(response) == [("/requests/0/scenario", "rules_batch")]
    assert served.post("/recommend/batch", {"requests": [{"items": ["i02"], "scenario": None}]}).status_code == 200


def test_the_next_request_knows_a_new_version(served, file, caplog):
    """Whose digest is another one; what it no longer has is unknown."""
    caplog.set_level(logging.INFO)
    before = served.recommend(items=["i02"], scenario="home")
    assert "Scenarios file reloaded" not in caplog.text
    replace(file, "[home]\nk = 2\n[basket]\n")
    answer = served.recommend(items=["i02"], scenario="home")
    assert (answer["count"], answer["scenario"]["name"]) == (2, "home")
    assert answer["scenario"]["rules"] != before["scenario"]["rules"]
    assert served.recommend(items=["i02"], scenario="basket")["count"] == 10
    assert list_errors(served.post("/recommend", {"items": ["i02"], "scenario": "wide"}))
    assert served.counts()[COUNT.format("basket", "model")] == 1
    assert caplog.text.count("Scenarios file reloaded") == 1
    replace(file, MANY)
    assert served.recommend(items=["i02"], scenario="home")["scenario"] == before["scenario"]


@pytest.mark.parametrize("broken", ["[home", "[home]\nk = 0", None], ids=["no TOML", "a wrong value", "gone"])
def test_a_version_that_cannot_be_used_changes_nothing(served, file, caplog, broken):
    """The one before answers, the log says why once, and a metric until the file can be used again."""
    before = served.recommend(items=["i02"], scenario="home")
    if broken is None:
        file.unlink()
    else:
        replace(file, broken)
    for _ in range(3):
        answer = served.recommend(items=["i02"], scenario="home")
        assert (drop(answer), answer["scenario"]) == (drop(before), before["scenario"])
    assert served.counts()["nextitem_scenarios_refused"] == 1
    complaints = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.message for record in complaints] == [
        "Scenarios file cannot be used: the scenarios from before it go on"
    ]
    assert str(file) in complaints[0].fields["why"]
    replace(file, "[home]\nk = 3\n")
    assert served.recommend(items=["i02"], scenario="home")["count"] == 3
    assert served.counts()["nextitem_scenarios_refused"] == 0


def test_the_file_is_looked_at_once_a_second_and_not_without_a_scenario(served, monkeypatch):
    """Not for each request."""
    looks: list[Path] = []
    monkeypatch.setattr(live_scenarios, "stat_fingerprint", looks.append)
    served.recommend(items=["i02"])
    assert not looks
    monkeypatch.setattr(live_scenarios, "RELOAD_S", 3600)
    for _ in range(3):
        served.recommend(items=["i02"], scenario="home")
    assert not looks


def test_a_service_does_not_start_with_a_file_that_cannot_be_used(make_client, file):
    """Nobody would notice that its scenarios are missing."""
    file.write_text("[home]\nk = 0\n")
    with pytest.raises(ScenariosUnusable, match="home: /k must be at least 1"):
        make_client(scenarios=file)
