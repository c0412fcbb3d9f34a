"""The views of traffic and health in a browser: figures as Prometheus has them, and a service that is gone."""

import re
import socket
import subprocess
import time
from collections import defaultdict
from contextlib import ExitStack

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.grafana.prometheus import Prometheus, PrometheusFailed

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt '.[browser]'"
).expect
expect.set_options(timeout=20_000)  # machines may be busy

HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_live_while_somebody_looks(view, url):
    """Rates and times grow with traffic, also as a table; a hidden tab asks nothing, and goes on when it is seen."""
    page = view(url, "live")
    expect(page.locator(".chart")).to_have_count(5)
    for number in range(40):
        httpx.post(f"{url}/recommend", json={"items": [f"i0{1 + number % 8}"]}).raise_for_status()
    rates = page.locator(".chart", has=page.get_by_role("heading", name="Answers per second, by source"))
    expect(rates.locator(".legend li", has_text="model")).to_contain_text(re.compile(r"model (?!0\.0)[\d.]+/s"))
    drawn = page.locator(".chart .line").evaluate_all("lines => lines.map((line) => line.getAttribute('d').length)")
    assert sum(length > 10 for length in drawn) >= 8
    expect(rates.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"by source, now: .*model [\d.]+/s"))
    toggle = page.get_by_role("button", name="Answers per second, by source as a table")
    toggle.focus()
    page.keyboard.press("Enter")
    expect(toggle).to_have_attribute("aria-pressed", "true")
    expect(rates.locator("thead")).to_contain_text("model")
    expect(rates.locator("tbody tr").nth(1)).to_be_visible()

    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/metrics?" in request.url else None)
    page.evaluate(HIDE, True)
    page.wait_for_timeout(200)
    asked.clear()
    page.wait_for_timeout(4500)
    assert asked == []
    page.evaluate(HIDE, False)
    page.wait_for_timeout(2500)
    assert 1 <= len(asked) <= 2
    page.get_by_role("link", name="Items").click()
    page.wait_for_timeout(300)
    asked.clear()
    page.wait_for_timeout(4500)
    assert asked == []


def quantile_as_prometheus(quantile, buckets):
    """histogram_quantile over pairs of a bound and a cumulative count."""
    buckets = sorted(buckets)
    rank, low, below = quantile * buckets[-1][1], 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            return low if bound == float("inf") else low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    raise AssertionError


def test_live_counts_as_prometheus_does(open_console, url):
    """Rates and quantiles of real answers, by the page's code and by Prometheus' own reader and formula."""
    before = httpx.get(f"{url}/metrics").text
    for number in range(60):
        httpx.post(f"{url}/recommend", json={"items": [f"i0{1 + number % 8}"]}).raise_for_status()
    time.sleep(0.5)
    after = httpx.get(f"{url}/metrics").text
    page = open_console(url)
    found = page.evaluate(
        """async ([before, after]) => {
          const app = document.querySelector("script[type=module]").src;
          const { findQuantile, increase, readMetrics, sumBy } = await import(app.replace("app.js", "prometheus.js"));
          const name = "nextitem_stage_duration_seconds_bucket", answers = "nextitem_recommendations_total";
          const [first, last] = [before, after].map((text) => readMetrics(text, [name, answers]));
          const grown = [...increase(sumBy(first[name], "stage", "le"), sumBy(last[name], "stage", "le"))];
          const quantiles = {};
          for (const stage of ["encode", "queue", "history", "inference", "respond"]) {
            const of = grown.filter(([group]) => group.startsWith(`${stage}\\t`));
            const bound = (group) => Number(group.split("\\t")[1].replace("+Inf", "Infinity"));
            const buckets = of.map(([group, count]) => [bound(group), count]);
            quantiles[stage] = [0.5, 0.99].map((q) => findQuantile(q, buckets));
          }
          const sources = [first, last].map((samples) => sumBy(samples[answers], "source"));
          return [quantiles, Object.fromEntries(increase(...sources))];
        }""",
        [before, after],
    )
    texts = []
    for text in (before, after):
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        stages = [sample for sample in samples if sample.name == "nextitem_stage_duration_seconds_bucket"]
        texts.append({(sample.labels["stage"], sample.labels["le"]): sample.value for sample in stages})
    quantiles, answers = found
    for stage, computed in quantiles.items():
        buckets = [
            (float(bound), value - texts[0][of, bound]) for (of, bound), value in texts[1].items() if of == stage
        ]
        assert computed == pytest.approx([quantile_as_prometheus(q, buckets) for q in (0.5, 0.99)], rel=0.02)
    assert answers["model"] == 60


@pytest.fixture
def prometheus(require_tool, tmp_path):
    """A real Prometheus that is given samples, lines of text with their times; it evaluates expressions at a time."""
    with ExitStack() as stack:

        def start(lines):
            (tmp_path / "samples").write_text("\n".join([*lines, "# EOF\n"]))
            command = [require_tool("promtool"), "tsdb", "create-blocks-from", "openmetrics"]
            subprocess.run([*command, tmp_path / "samples", tmp_path / "data"], check=True, capture_output=True)
            (tmp_path / "prometheus.yml").write_text("global: {}\n")
            with socket.create_server(("127.0.0.1", 0)) as free:
                address = f"127.0.0.1:{free.getsockname()[1]}"
            options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
            command = [require_tool("prometheus"), *options, f"--web.listen-address={address}"]
            process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
            stack.callback(process.terminate)
            client = Prometheus(f"http://{address}")
            stack.callback(client.close)
            deadline_s = time.monotonic() + 60
            while not answers(client):
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            return lambda expression, at_s: {
                "".join(series.labels.values()): series.values[0]
                for series in client.query_range(expression, start_s=at_s, end_s=at_s, step_s=1)
                if series.values
            }

        yield start


def answers(prometheus):
    """Whether it does already."""
    try:
        return bool(prometheus.query("vector(1)"))
    except PrometheusFailed:
        return False


def test_live_shows_what_prometheus_makes_of_the_same_scrapes(open_console, url, prometheus):
    """Rates of answers and events, medians and 99th percentiles, by a real Prometheus' own functions, within 2 %."""
    page = open_console(url)
    scrapes = []
    page.on("response", lambda response: scrapes.append(response) if "/metrics?" in response.url else None)
    page.get_by_role("link", name="Live").click()
    number = 0
    while len(scrapes) < 4:
        number += 1
        httpx.post(f"{url}/recommend", json={"items": [f"i0{1 + number % 8}"][: number % 2]}).raise_for_status()
        httpx.post(f"{url}/events", json={"user_id": "steady", "item_id": "i01", "event_id": f"e{number}"})
        page.wait_for_timeout(100)
    expect(page.locator(".chart .line").first).to_have_attribute("d", re.compile("L"))
    page.evaluate(HIDE, True)
    found = page.evaluate(
        """async () => {
          const app = document.querySelector("script[type=module]").src;
          const { makeLines } = await import(app.replace("app.js", "live.js"));
          const { times, hitRate, ...lines } = makeLines();
          const last = ([name, values]) => [name, values.at(-1)];
          const shown = Object.entries(lines).map(([kind, of]) => [kind, Object.fromEntries([...of].map(last))]);
          return { times, ...Object.fromEntries(shown) };
        }"""
    )
    times = found["times"]
    series = defaultdict(list)
    for at_s, scrape in zip(times, scrapes, strict=False):  # the tab may have been hidden while it asked
        for line in scrape.text().splitlines():
            if line[0] != "#":
                series[line.rpartition(" ")[0]].append(f"{line} {at_s:.3f}")
    assert all(len(lines) == len(times) >= 3 for lines in series.values())
    ask = prometheus(line for lines in series.values() for line in lines)
    first_s = min(at_s for at_s in times if times[-1] - at_s <= 10)
    window = f"{round(1000 * (times[-1] - first_s)) + 1}ms"  # the left end does not belong to it
    stages = f"sum by (stage, le) (rate(nextitem_stage_duration_seconds_bucket[{window}]))"
    for kind, expression in {
        "answers": f"sum by (source) (rate(nextitem_recommendations_total[{window}]))",
        "events": f"sum by (result) (rate(nextitem_events_total[{window}]))",
        "p50": f"1000 * histogram_quantile(0.5, {stages})",
        "p99": f"1000 * histogram_quantile(0.99, {stages})",
    }.items():
        assert found[kind] == pytest.approx(ask(expression, times[-1]), rel=0.02), kind
    assert min(found["answers"]["model"], found["answers"]["popular"], found["events"]["accepted"]) > 0


def test_metrics_are_read_as_they_are_written(open_console, url):
    """Escapes, exponents, timestamps, comments; other metrics are passed over."""
    lines = {
        'a{x="1"} 2': [{"labels": {"x": "1"}, "value": 2}],
        "a 5e-3": [{"labels": {}, "value": 0.005}],
        r'a{x="} \"q\" \\ \n",y=""} 1 1700000000': [{"labels": {"x": '} "q" \\ \n', "y": ""}, "value": 1}],
        "ab 1": [],
        '# HELP a a{x="1"} 1': [],
        "a": [],
        "": [],
    }
    script = """async (lines) => {
      const app = document.querySelector("script[type=module]").src;
      const { readMetrics } = await import(app.replace("app.js", "prometheus.js"));
      return lines.map((line) => readMetrics(line, ["a"]).a);
    }"""
    assert open_console(url).evaluate(script, [*lines]) == [*lines.values()]


def test_health_of_a_service_that_is_gone(view, url):
    """What it said last stays, and is said to be that."""
    page = view(url, "health", expected=("ERR_",))
    page.route("**/status", lambda route: route.abort())
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    expect(page.get_by_role("status")).to_contain_text("This is what it said last")
    page.unroute("**/status")
    expect(page.get_by_role("alert")).to_have_count(0)
