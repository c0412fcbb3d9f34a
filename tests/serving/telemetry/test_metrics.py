"""Metrics: every name of the contract, at 0 from the start, right after known traffic, and bounded."""

import asyncio
import re
import resource
import time
from contextlib import ExitStack

import pytest

from service.telemetry.exposition import DEPRECATED
from service.telemetry.metrics import Metrics
from service.telemetry.model_metrics import SOURCES
from service.telemetry.stage_timer import StageTimer

ROUTES = [("/recommend", "POST"), ("/users/{user_id}/history", "GET")]

# Name, kind and labels, as the contract has them.
CONTRACT = [
    ("nextitem_http_request_duration_seconds", "histogram", {"route", "method", "code"}),
    ("nextitem_stage_duration_seconds", "histogram", {"stage"}),
    ("nextitem_recommendations_total", "counter", {"source", "version", "variant"}),
    ("nextitem_recommend_total", "counter", {"source", "version", "variant"}),
    ("nextitem_fallbacks_total", "counter", {"reason"}),
    ("nextitem_fallback_total", "counter", {"reason"}),
    ("nextitem_shed_total", "counter", {"reason"}),
    ("nextitem_explained_total", "counter", {"result"}),
    ("nextitem_filtered_total", "counter", {"plan"}),
    ("nextitem_similar_total", "counter", {"result"}),
    ("nextitem_scenario_recommendations_total", "counter", {"scenario", "source"}),
    ("nextitem_scenarios_refused", "gauge", set()),
    ("nextitem_batch_size", "histogram", set()),
    ("nextitem_queue_depth", "gauge", set()),
    ("nextitem_queue_wait_seconds", "histogram", set()),
    ("nextitem_events_total", "counter", {"type", "result"}),
    ("nextitem_events_late_total", "counter", set()),
    ("nextitem_event_lag_seconds", "histogram", set()),
    ("nextitem_unknown_items_total", "counter", set()),
    ("nextitem_store_duration_seconds", "histogram", {"op"}),
    ("nextitem_store_errors_total", "counter", {"kind"}),
    ("nextitem_store_durable", "gauge", set()),
    ("nextitem_store_memory_bytes", "gauge", set()),
    ("nextitem_store_memory_limit_bytes", "gauge", set()),
    ("nextitem_store_lost_events", "gauge", set()),
    ("nextitem_archive_last_success_timestamp_seconds", "gauge", set()),
    ("nextitem_archive_failed_runs", "gauge", {"kind"}),
    ("nextitem_archive_pending_events", "gauge", set()),
    ("nextitem_erasures_pending", "gauge", set()),
    ("nextitem_erasure_oldest_pending_timestamp_seconds", "gauge", set()),
    ("nextitem_store_clock_skew_seconds", "gauge", set()),
    ("nextitem_catalogue_version", "gauge", set()),
    ("nextitem_catalogue_behind_total", "counter", set()),
    ("nextitem_http_connections", "gauge", set()),
    ("nextitem_model_info", "gauge", {"name", "version", "provider", "digest"}),
    ("nextitem_model_trained_timestamp_seconds", "gauge", set()),
    ("nextitem_model_reloads_total", "counter", {"result"}),
    ("nextitem_model_reload_seconds", "histogram", set()),
    ("nextitem_model_swap_pause_seconds", "histogram", set()),
    ("nextitem_models_loaded", "gauge", set()),
    ("nextitem_model_refused", "gauge", set()),
    ("nextitem_deployment_generation", "gauge", set()),
    ("nextitem_variant_fallbacks_total", "counter", {"reason"}),
    ("nextitem_variant_breakers_opened_total", "counter", set()),
    ("nextitem_workers", "gauge", set()),
    ("nextitem_workers_missing", "gauge", set()),
    ("nextitem_worker_deaths_total", "counter", set()),
    ("nextitem_event_loop_lag_seconds", "histogram", set()),
    ("nextitem_process_resident_memory_bytes", "gauge", set()),
    ("nextitem_process_open_fds", "gauge", set()),
    ("nextitem_process_max_fds", "gauge", set()),
    ("nextitem_process_cpu_seconds_total", "counter", set()),
    ("nextitem_process_start_time_seconds", "gauge", set()),
    ("nextitem_build_info", "gauge", {"version", "python", "onnxruntime"}),
]


@pytest.fixture
def metrics():
    """The metrics of a service that has just started."""
    metrics = Metrics(event_types=("view", "cart"), model_version="v1", routes=ROUTES)
    metrics.model.serves(name="tiny", version="v1", provider="CPUExecutionProvider", digest="d", trained_at_s=12.5)
    metrics.built(version="0.1", onnxruntime="1.31")
    return metrics


def read(metrics):
    """Kinds by name, and values by sample."""
    metrics.flush()
    lines = metrics.expose().decode().splitlines()
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return kinds, {name: float(value) for name, value in samples.items()}


def test_every_metric_of_the_contract_exists_and_no_other(metrics):
    """Names, kinds and labels are those of the contract, and each has a help text."""
    kinds, samples = read(metrics)
    assert kinds == {name: kind for name, kind, _ in CONTRACT}
    for name, kind, labels in CONTRACT:
        sample = next(
            sample for sample in samples if sample.startswith(f"{name}_count" if kind == "histogram" else name)
        )
        assert set(re.findall(r'(\w+)="', sample)) == labels
    helps = [line for line in metrics.expose().decode().splitlines() if line.startswith("# HELP")]
    assert len(helps) == len(CONTRACT)
    assert all(len(line.split(maxsplit=3)) == 4 for line in helps)


def test_closed_label_sets_exist_at_zero(metrics):
    """Rates and alerts need their series before the first event of a kind."""
    _, samples = read(metrics)
    for sample in (
        *(f'nextitem_stage_duration_seconds_count{{stage="{name}"}}' for name in ("history", "encode", "queue")),
        *(f'nextitem_stage_duration_seconds_count{{stage="{name}"}}' for name in ("inference", "respond")),
        *(
            f'nextitem_recommendations_total{{source="{name}",variant="champion",version="v1"}}'
            for name in ("model", "neighbours", "rules", "popular")
        ),
        *(f'nextitem_fallbacks_total{{reason="{name}_unavailable"}}' for name in ("store", "engine")),
        *(f'nextitem_fallbacks_total{{reason="{name}"}}' for name in ("deadline", "overloaded")),
        *(
            f'nextitem_shed_total{{reason="{name}_full"}}'
            for name in ("queue", "requests", "batches", "events", "waiters")
        ),
        *(
            f'nextitem_events_total{{result="{result}",type="{kind}"}}'
            for kind in ("view", "cart", "other")
            for result in ("accepted", "duplicate", "rejected")
        ),
        *(f'nextitem_store_duration_seconds_count{{op="{name}"}}' for name in ("append", "read", "export", "ping")),
        *(f'nextitem_store_errors_total{{kind="{name}"}}' for name in ("connection", "timeout", "refused", "script")),
        'nextitem_http_request_duration_seconds_count{code="200",method="POST",route="/recommend"}',
    ):
        assert samples[sample] == 0


def test_old_names_mirror_the_renamed_counters(metrics):
    """For one release each renamed counter has the same series and values under its old name, which says so."""
    metrics.answered(source="model", degraded=None, version="v1", variant="champion")
    metrics.answered(source="popular", degraded="deadline", version="v1", variant="champion")
    _, samples = read(metrics)
    for new, old in DEPRECATED.items():
        mirrored = {name.replace(new, old): value for name, value in samples.items() if name.startswith(new)}
        assert sum(mirrored.values()) == (2 if "recommend" in new else 1)
        assert mirrored == {name: value for name, value in samples.items() if name.startswith(old)}
        assert f"# HELP {old} Deprecated: use {new}\n" in metrics.expose().decode()


def test_histograms_of_seconds_start_at_half_a_millisecond(metrics):
    """The smallest bucket tells the fastest stages apart."""
    _, samples = read(metrics)
    bounds = [float(bound) for bound in re.findall(r'queue_wait_seconds_bucket\{le="([\d.]+)"\}', "\n".join(samples))]
    assert bounds[0] == 0.0005
    assert bounds == sorted(bounds)


def test_labels_are_bounded(metrics):
    """Ten thousand paths, methods and types that nobody declared do not add ten thousand series."""
    for number in range(10_000):
        metrics.request_ended(route=f"/users/{number}", method=f"M{number}", code=404, timer=StageTimer())
        metrics.event_handled(event_type=f"type{number}", result="rejected")
    metrics.event_handled(event_type=["view"], result="rejected")
    _, samples = read(metrics)
    assert len(samples) < 560
    assert (
        samples['nextitem_http_request_duration_seconds_count{code="404",method="other",route="unmatched"}'] == 10_000
    )
    assert samples['nextitem_events_total{result="rejected",type="other"}'] == 10_001


def test_scenarios_have_series_until_there_were_sixty_four(metrics):
    """Those of the file are there at 0; however often it changes, no more names than one file may have get series."""
    metrics.scenarios.expect(["home", "basket"])
    metrics.scenarios.expect([f"s{number}" for number in range(200)])
    metrics.scenarios.answered("home", "model")
    metrics.scenarios.answered("s199", "popular")
    _, samples = read(metrics)
    name = 'nextitem_scenario_recommendations_total{{scenario="{}",source="{}"}}'
    counted = {each: samples[name.format(*each)] for each in (("home", "model"), ("basket", "model"), ("s61", "model"))}
    assert counted == {("home", "model"): 1, ("basket", "model"): 0, ("s61", "model"): 0}
    assert (samples[name.format("other", "popular")], samples[name.format("other", "model")]) == (1, 0)
    assert name.format("s62", "model") not in samples
    series = [one for one in samples if one.startswith("nextitem_scenario_recommendations_total")]
    assert len(series) == 65 * len(SOURCES)


def test_versions_have_series_until_sixteen_followed(metrics):
    """The last sixteen versions have series of their own; an answer of an older one counts as other."""
    for number in range(2, 20):
        metrics.answers.expect(f"v{number}", "champion")
        metrics.answered(source="model", degraded=None, version=f"v{number}", variant="champion")
    metrics.answered(source="model", degraded=None, version="v1", variant="champion")
    _, samples = read(metrics)
    name = 'nextitem_recommendations_total{{source="model",variant="champion",version="{}"}}'
    counted = {version: samples[name.format(version)] for version in ("v4", "v19", "other")}
    assert counted == {"v4": 1, "v19": 1, "other": 1}
    assert name.format("v3") not in samples
    assert len([sample for sample in samples if sample.startswith("nextitem_recommendations_total")]) == 4 * 16 + 1


def test_model_that_was_in_use_is_not_shown(metrics):
    """After a swap the info series is the new model's alone."""
    metrics.model.serves(name="tiny", version="v2", provider="CPUExecutionProvider", digest="e", trained_at_s=13.0)
    _, samples = read(metrics)
    info = {name: value for name, value in samples.items() if name.startswith("nextitem_model_info")}
    assert list(info.values()) == [1]
    assert 'version="v2"' in next(iter(info))


def test_model_is_described(metrics):
    """The info series is 1, the training time is a timestamp."""
    _, samples = read(metrics)
    info = 'nextitem_model_info{digest="d",name="tiny",provider="CPUExecutionProvider",version="v1"}'
    assert (samples[info], samples["nextitem_model_trained_timestamp_seconds"]) == (1, 12.5)


def test_two_services_in_one_process_do_not_add_up(metrics):
    """Each has its own registry."""
    other = Metrics(event_types=("view",), model_version="v1", routes=ROUTES)
    other.batch_started(3)
    assert read(metrics)[1]["nextitem_batch_size_count"] == 0
    assert read(other)[1]["nextitem_batch_size_sum"] == 3


def test_the_process_is_described_as_it_is(metrics, tmp_path):
    """Memory, files, processor time and start are those of this process, and processor time does not go back."""
    _, before = read(metrics)
    assert 10e6 < before["nextitem_process_resident_memory_bytes"] < 10e9
    assert before["nextitem_process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 0 < time.time() - before["nextitem_process_start_time_seconds"] < 3600
    assert before["nextitem_workers"] == 1
    with ExitStack() as opened:
        for number in range(50):
            opened.enter_context((tmp_path / str(number)).open("w"))
        sum(range(3_000_000))
        metrics._process._refreshed_s = float("-inf")
        _, after = read(metrics)
    assert after["nextitem_process_open_fds"] == before["nextitem_process_open_fds"] + 50
    assert after["nextitem_process_cpu_seconds_total"] > before["nextitem_process_cpu_seconds_total"]
    assert after["nextitem_process_start_time_seconds"] == before["nextitem_process_start_time_seconds"]


def test_a_loop_that_is_held_up_is_late(metrics):
    """Half a second in which nothing else runs is seen as such."""

    async def hold_up():
        settling = asyncio.create_task(metrics.keep_flushed())
        await asyncio.sleep(0)
        time.sleep(0.8)  # noqa: ASYNC251 - the point
        await asyncio.sleep(0.1)
        settling.cancel()

    asyncio.run(hold_up())
    _, samples = read(metrics)
    assert samples["nextitem_event_loop_lag_seconds_count"] >= 1
    assert samples["nextitem_event_loop_lag_seconds_sum"] >= 0.5
