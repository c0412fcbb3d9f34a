"""report.html: one page of a run for people, whole, harmless whatever items are called, and never the run's ruin."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from training.baselines.catalogue import make_baseline
from training.cli import main
from training.data.split import split_by_time
from training.recipe_models import BASELINES
from training.report import report as report_module
from training.report.charts import Scale, draw_bars, draw_intervals, draw_lines, tell_short
from training.report.collection import measure_levels
from training.report.data_facts import count_lengths, count_times
from training.report.spread import describe_spread, measure_gini
from training.runs.run import Run

RECIPE = """
[model]
max_length = 6
width = 8
layers = 1
heads = 2

[train]
device = "cpu"
epochs = 2
batch_size = 8
learning_rate = 1e-2
warmup_steps = 2
"""
HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The tags of a page with their attributes, its texts, and whether every tag is closed."""

    VOID = frozenset({"meta", "img", "link", "br"})

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.content = path.read_text(encoding="utf-8")
        self.feed(self.content)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def headings(self) -> list[str]:
        return re.findall(r"<h2>(.*?)</h2>", self.content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cycles) -> Path:
    """A log whose items are called as attackers call them, its titles, and a finished run of a transformer."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "small.toml").write_text(RECIPE)
    rows = [
        f"{HOSTILE}{user},{_name(item)},{1_700_000_000 + 3600 * step}"
        for user, walk in enumerate(cycles)
        for step, item in enumerate(walk)
    ]
    (folder / "log.csv").write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
    titles = {_name(item): {"title": f'"><img src=x onerror=alert({item})>\u0007\ud800'} for item in range(1, 12)}
    (folder / "items.json").write_text(json.dumps(titles))
    fit = ["fit", str(folder / "small.toml"), "--data", str(folder / "log.csv"), "--items", str(folder / "items.json")]
    assert main([*fit, "--out", str(folder / "run")]) == 0
    return folder


def _name(item: int) -> str:
    return f"<script>{item:02}</script>&'"


@pytest.fixture(scope="module")
def page(folder) -> Page:
    """The page that `fit` wrote."""
    return Page(folder / "run" / "report.html")


def test_fit_leaves_a_page_that_needs_nothing_else(page):
    """No script, no address but pictures in the page itself, and a policy that allows no other."""
    assert not page.names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    policy = next(attributes for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert policy["content"] == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    addresses = [value for _, attributes in page.tags for key, value in attributes.items() if key in {"src", "href"}]
    assert [str(address)[:22] for address in addresses] == ["data:image/png;base64,"]
    assert "url(" not in page.content
    assert "@import" not in page.content
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)


def test_hostile_names_are_texts(page):
    """Users, items and titles stand on the page letter by letter, without control characters."""
    assert HOSTILE in page.text
    assert "<script>12</script>&'" in page.text
    assert '"><img src=x onerror=alert(1)>\ufffd\ufffd' in page.text
    assert "<script" not in page.content
    assert "<img src=x" not in page.content
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", page.content)


def test_it_has_every_part(page, folder):
    """From the data to the recipe; pictures say what they show."""
    parts = ["The data", "How it learned", "How good it is", "What it recommends", "Where it looks"]
    assert page.headings == [*parts, "10 users, drawn at random", "How it was made"]
    pictures = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    assert [label.split(" by ")[0] for label in pictures if label] == [
        "Users",
        "Events",
        "Training loss",
        "Validation NDCG@10",
        "NDCG@10 of each model with its 95 % interval",
        "Share of all recommendations that the most recommended items have, beside the log's",
    ]
    results = Run.open(folder / "run").read_results()
    winner = results["comparison"]["winner"]
    assert f"{winner}" in page.text
    assert f"{results['models']['bert4rec']['NDCG@10']['value']:.4f} [" in page.text
    assert "Missing" not in page.text
    assert ("light dark" in page.content, "prefers-color-scheme: dark" in page.content) == (True, True)


def test_counters_are_levels_of_the_learning_curve(page, folder):
    """A dashed line each, named in the legend, measured on the questions that validate."""
    levels = json.loads((folder / "run" / "report.json").read_text())["levels"]
    assert levels.keys() == {"users", "of_users", "models"}
    assert (levels["users"], levels["of_users"]) == (24, 24)
    assert list(levels["models"]) == ["pop", "markov", "rules"]
    assert levels["models"]["markov"] > levels["models"]["pop"]
    assert [attributes["class"] for tag, attributes in page.tags if tag == "line" and "level" in str(attributes)] == [
        "level s1",
        "level s2",
        "level s3",
    ]


def test_examples_are_what_the_model_lists(page, folder):
    """Ten users of the log with their newest events, the item that came next, and its place in their list."""
    facts = json.loads((folder / "run" / "report.json").read_text())
    assert len({example["user"] for example in facts["examples"]}) == 10
    events: dict[str, list[str]] = {}
    for line in (folder / "log.csv").read_text().splitlines()[1:]:
        user, item, _ = line.split(",")
        events.setdefault(user, []).append(item)
    for example in facts["examples"]:
        assert [*example["history"], example["next"]] == events[example["user"]]
        assert not set(example["list"]) & set(example["history"])
        if example["next"] in example["list"]:
            assert example["place"] == pytest.approx(example["list"].index(example["next"]) + 1, abs=0.5)
    hits = sum(example["next"] in example["list"] for example in facts["examples"])
    assert len(re.findall('class="hit"', page.content)) == hits > 0


def test_lists_are_measured_over_all_users(folder):
    """The share of the catalogue is what the results have as coverage@10, for the counters, too."""
    facts = json.loads((folder / "run" / "report.json").read_text())
    results = Run.open(folder / "run").read_results()
    assert (facts["spread"]["users"], facts["spread"]["of_users"], facts["spread"]["catalogue"]) == (24, 24, 12)
    for name, metrics in results["models"].items():
        assert facts["spread"]["models"][name]["share"] == pytest.approx(metrics["coverage@10"]["value"])


def test_report_writes_it_again(folder, capsys):
    """With the log the same page but for its time, and without it, too, from what was kept; another log is refused."""
    run, page = folder / "run", folder / "run" / "report.html"

    def read() -> str:
        return re.sub(r"written \d.* UTC", "", page.read_text())

    kept, facts = read(), (run / "report.json").read_text()
    page.unlink()
    assert main(["report", str(run)]) == 0
    assert read() == kept
    assert capsys.readouterr().err.endswith(f"nextitem-train: report written to {page}\n")
    other = folder / "other.csv"
    other.write_text("\n".join((folder / "log.csv").read_text().splitlines()[:-1]) + "\n")
    assert main(["report", str(run), "--data", str(other)]) == 2
    assert "is not the log that" in capsys.readouterr().err
    assert main(["report", str(run), "--data", str(folder / "log.csv")]) == 0
    again, before = json.loads((run / "report.json").read_text()), json.loads(facts)
    assert again["examples"] == before["examples"]
    assert again["spread"]["models"] == {"bert4rec": before["spread"]["models"]["bert4rec"]}


def test_other_titles_can_be_given(folder, tmp_path):
    """By --items, for a run that was given none."""
    (tmp_path / "items.json").write_text(json.dumps({_name(item): {"name": f"Item {item}"} for item in range(1, 13)}))
    run = tmp_path / "run"
    assert main(["fit", "pop", "--data", str(folder / "log.csv"), "--out", str(run)]) == 0
    assert "Item 12" not in Page(run / "report.html").text
    assert main(["report", str(run), "--items", str(tmp_path / "items.json")]) == 0
    assert "Item 12" in Page(run / "report.html").text


def test_a_counter_has_a_report(folder, tmp_path):
    """Nothing is learned and nothing looks anywhere; all else is there."""
    assert main(["fit", "markov", "--data", str(folder / "log.csv"), "--out", str(tmp_path / "run")]) == 0
    page = Page(tmp_path / "run" / "report.html")
    assert "How it learned" not in page.headings
    assert "Where it looks" not in page.headings
    assert {"The data", "How good it is", "What it recommends", "How it was made"} < set(page.headings)


def test_an_interrupted_run_says_what_is_missing(folder, tmp_path, capsys):
    """Without its log no data, with it data and lists of the weights kept so far; no verdict either way."""
    run = tmp_path / "run"
    for path in (folder / "run").rglob("*"):
        if path.is_file() and path.name not in {"results.json", "report.html", "report.json"}:
            (run / path.relative_to(folder / "run")).parent.mkdir(parents=True, exist_ok=True)
            (run / path.relative_to(folder / "run")).write_bytes(path.read_bytes())
    assert main(["report", str(run)]) == 0
    page = Page(run / "report.html")
    assert page.headings == ["The data", "How it learned", "How it was made"]
    assert "The run is not finished" in page.text
    assert "nextitem-train report RUN --data FILE" in page.text
    assert main(["report", str(run), "--data", str(folder / "log.csv")]) == 0
    page = Page(run / "report.html")
    assert "10 users, drawn at random" in page.headings
    assert "How good it is" not in page.headings
    assert not (run / "report.json").exists()
    (run / "kept.safetensors").unlink()
    assert main(["report", str(run), "--data", str(folder / "log.csv")]) == 0
    assert "has no weights yet" in Page(run / "report.html").text
    (run / "config.json").unlink()
    assert main(["report", str(run)]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_a_report_that_fails_spoils_no_run(folder, tmp_path, monkeypatch, capsys):
    """The run is finished all the same; stderr says why there is no report and how to have one."""

    def fail(*_: object) -> None:
        raise KeyError("what nobody expected")

    monkeypatch.setattr(report_module, "collect", fail)
    assert main(["fit", "pop", "--data", str(folder / "log.csv"), "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "report.html was not written (KeyError: 'what nobody expected'); the run is whole" in said.err
    assert "pop" in said.out
    assert Run.open(tmp_path / "run").is_finished
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_damaged_report_json_is_named(folder, tmp_path, capsys):
    """Not a traceback, and no page that is half true."""
    assert main(["fit", "pop", "--data", str(folder / "log.csv"), "--out", str(tmp_path / "run")]) == 0
    facts = json.loads((tmp_path / "run" / "report.json").read_text())
    for damaged in ("{", json.dumps({**facts, "data": {}})):
        (tmp_path / "run" / "report.json").write_text(damaged)
        assert main(["report", str(tmp_path / "run")]) == 2
        assert "report.json is not what a run writes" in capsys.readouterr().err


def test_levels_by_time_count_no_validation_event(folder, cycles, make_log):
    """Counters of the test have counted what validates where one moment parts all: there they count anew."""
    log = make_log(cycles)
    log = replace(log, timestamps_ms=np.concatenate([np.arange(len(walk)) * 1000 for walk in cycles]).astype(np.int64))
    split = split_by_time(log, 0.2)
    knowing = {name: make_baseline(BASELINES[name](name=name), split.counted, 12, None) for name in ("pop", "rules")}
    run = Run.open(folder / "run")
    assert measure_levels(run, log, split, knowing) == measure_levels(run, log, split, {})


def test_lengths_and_times_lie_in_bars():
    """Short histories one by one, long ones in bars that double; times in bars of equal duration."""
    assert count_lengths(np.array([2, 2, 4])) == {"labels": ["2", "3", "4"], "users": [2, 0, 1]}
    found = count_lengths(np.array([3, 5, 7, 16, 31]))
    assert found == {"labels": ["2-3", "4-7", "8-15", "16-31"], "users": [1, 2, 0, 2]}
    assert count_times(None) is None
    assert count_times(np.array([5, 5])) is None
    times = count_times(np.arange(0, 4000))
    assert times is not None
    assert (times["from_ms"], times["until_ms"], times["events"]) == (0, 3999, [100] * 40)


def test_gini_and_coverage_by_hand():
    """0 where all items are listed alike, 1 - 1 / V where one has everything, and a case between."""
    assert measure_gini(np.array([3, 3, 3])) == 0
    assert measure_gini(np.array([0, 0, 0, 8])) == pytest.approx(0.75)
    assert measure_gini(np.array([1, 3])) == pytest.approx(0.25)
    assert measure_gini(np.array([0, 0])) == 0
    lists = {"a": np.array([[1, 2], [1, 0]], dtype=np.int32)}
    found = describe_spread(np.array([5, 1, 1, 1]), lists)
    assert (found["catalogue"], found["users"], found["items"]) == (4, 2, [1, 2, 3, 4])
    assert found["models"]["a"]["share"] == 0.5
    assert found["models"]["a"]["curve"] == pytest.approx([2 / 3, 1, 1, 1], abs=1e-6)
    assert found["models"]["a"]["top_tenth"] == pytest.approx(2 / 3)
    assert found["log"]["curve"][0] == pytest.approx(5 / 8)


def test_charts_place_what_they_are_given():
    """Bars end where their count is, lines go from left to right, one point stands in the middle; names are escaped."""
    assert Scale(0, 10, 100, 200).place(5) == 150
    assert Scale(1, 100, 0, 200, log=True).place(10) == 100
    bars = draw_bars(["<a>", "b"], [1, 4], label="l", x="x", y="y")
    heights = [float(height) for height in re.findall(r'class="bar".*? height="([\d.]+)"', bars)]
    assert heights[1] == pytest.approx(4 * heights[0], abs=0.3)
    assert "&lt;a&gt;: 1" in bars
    assert 'cx="' in draw_lines({"one": [(3, 0.5)]}, colours={"one": 0}, label="l", x="epoch", y="y")
    line, colours = [(1, 0.1), (2, 0.3), (3, 0.2)], {"a": 0, "pop": 1}
    lines = draw_lines({"a": line}, colours=colours, label="l", x="epoch", y="y", levels={"pop": 0.25})
    [points] = re.findall(r'points="([^"]+)"', lines)
    places = [tuple(map(float, point.split(","))) for point in points.split()]
    assert places == sorted(places)
    [level] = re.findall(r'class="level s1".*? y1="([\d.]+)"', lines)
    assert places[1][1] < float(level) < places[2][1]
    intervals = draw_intervals({"a": {"low": 0.1, "value": 0.2, "high": 0.4}}, colours=colours, label="l", x="x")
    [(low, high)] = re.findall(r'class="reach s0" x1="([\d.]+)" x2="([\d.]+)"', intervals)
    assert float(low) < float(high)
    assert [tell_short(number) for number in (0.25, 1500, 20_000, 3e6)] == ["0.25", "1,500", "20k", "3M"]
