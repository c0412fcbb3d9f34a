"""The table of all metrics: name, help text, labels, buckets, and how several workers combine a gauge."""

from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Combine = Literal["livesum", "livemax", "livemin", "livemostrecent"]
"""How the exposition combines a gauge over the live workers: prometheus_client's multiprocess modes."""


@dataclass(frozen=True, slots=True)
class CounterDefinition:
    """A counter. Its name ends in _total."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def make(self, registry: CollectorRegistry | None) -> Counter:
        """Make the counter. Without a registry it counts only towards the workers' shared exposition."""
        return Counter(self.name, self.help, self.labels, registry=registry)


@dataclass(frozen=True, slots=True)
class GaugeDefinition:
    """A gauge."""

    name: str
    help: str
    combine: Combine
    labels: tuple[str, ...] = ()

    def make(self, registry: CollectorRegistry | None) -> Gauge:
        """Make the gauge. Without a registry it counts only towards the workers' shared exposition."""
        return Gauge(self.name, self.help, self.labels, registry=registry, multiprocess_mode=self.combine)


@dataclass(frozen=True, slots=True)
class HistogramDefinition:
    """A histogram with the upper bounds of its buckets."""

    name: str
    help: str
    buckets: tuple[float, ...]
    labels: tuple[str, ...] = ()

    def make(self, registry: CollectorRegistry) -> Histogram:
        """Make the histogram."""
        return Histogram(self.name, self.help, self.labels, buckets=self.buckets, registry=registry)


# fmt: off
_SECONDS: Final = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0,
)
_LOOP_LAGS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_RELOADS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 600.0)
_EVENT_LAGS: Final = (
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0,
)
# fmt: on
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

# Requests and answers.
REQUESTS: Final = HistogramDefinition(
    "nextitem_http_request_duration_seconds",
    "Time from the arrival of a request's head to the end of its answer, by route template; code 499: the client "
    "disconnected",
    _SECONDS,
    ("route", "method", "code"),
)
STAGE_TIMES: Final = HistogramDefinition(
    "nextitem_stage_duration_seconds",
    "Time of each answered POST /recommend per stage, 0 for a skipped stage: encode (including reading the request), "
    "queue (for a batch and for the engine), history, inference, respond; they add up to the total",
    _SECONDS,
    ("stage",),
)
RECOMMENDATIONS: Final = CounterDefinition(
    "nextitem_recommendations_total",
    "Recommendations by source, model version and variant; versions before the last 16 count as 'other'",
    ("source", "version", "variant"),
)
FALLBACKS: Final = CounterDefinition(
    "nextitem_fallbacks_total", "Degraded recommendations by reason; cold starts do not count", ("reason",)
)
SHED_REQUESTS: Final = CounterDefinition(
    "nextitem_shed_total",
    "Requests over a limit, by reason: queue_full ones got popular items, waiters_full ones (waiting for a "
    "min_history_version) got 409, requests_full, batches_full and events_full ones got 503",
    ("reason",),
)
EXPLAINED: Final = CounterDefinition(
    "nextitem_explained_total",
    "Answers of the model to requests with explain, by result: explained, timeout (no time was left for the reasons), "
    "failed (the engine did, or the model retired meanwhile), unsupported (the bundle is from before candidate_scores)",
    ("result",),
)
FILTERED: Final = CounterDefinition(
    "nextitem_filtered_total",
    "Requests with a filter, by how the model finds what it allows: candidates (few items), exclude (all but few), "
    "mask (in the graph), none (all items are allowed)",
    ("plan",),
)
SIMILAR: Final = CounterDefinition(
    "nextitem_similar_total",
    "Answers of POST /similar by taste, by result: similar, or why other items were answered, as in "
    "nextitem_fallbacks_total; those by next count as recommendations",
    ("result",),
)
SCENARIOS: Final = CounterDefinition(
    "nextitem_scenario_recommendations_total",
    "Recommendations to requests that name a scenario, by scenario and source; names beyond the first 64 of a process "
    "count as 'other'",
    ("scenario", "source"),
)
SCENARIOS_REFUSED: Final = GaugeDefinition(
    "nextitem_scenarios_refused",
    "1 while a worker cannot use the scenarios file as it is, and goes on with the one before, else 0",
    "livemax",
)
BATCH_SIZE: Final = HistogramDefinition("nextitem_batch_size", "Requests per batch", _SIZES)
QUEUE_DEPTH: Final = GaugeDefinition("nextitem_queue_depth", "Requests waiting for a batch", "livesum")
QUEUE_WAIT: Final = HistogramDefinition(
    "nextitem_queue_wait_seconds", "Time that a request waited for its batch", _SECONDS
)
CONNECTIONS: Final = GaugeDefinition("nextitem_http_connections", "Open client connections", "livesum")

# Events.
EVENTS: Final = CounterDefinition(
    "nextitem_events_total",
    "Events by type and result; rejected events without a known type count as 'other'",
    ("type", "result"),
)
LATE_EVENTS: Final = CounterDefinition(
    "nextitem_events_late_total", "Accepted events that were too old for the remembered history"
)
EVENT_LAG: Final = HistogramDefinition(
    "nextitem_event_lag_seconds",
    "Time from an event's timestamp to its acceptance; 0 for timestamps in the future",
    _EVENT_LAGS,
)
UNKNOWN_ITEMS: Final = CounterDefinition(
    "nextitem_unknown_items_total", "Items unknown to the model, in accepted events and in answered requests"
)

# The store and the archiver. All workers see the same values.
STORE_TIMES: Final = HistogramDefinition(
    "nextitem_store_duration_seconds", "Duration of calls to the store", _SECONDS, ("op",)
)
STORE_ERRORS: Final = CounterDefinition("nextitem_store_errors_total", "Failed calls to the store by kind", ("kind",))
STORE_DURABLE: Final = GaugeDefinition(
    "nextitem_store_durable",
    "1 while the store's settings are safe (append-only file, fsync always, no eviction), else 0",
    "livemostrecent",
)
STORE_MEMORY: Final = GaugeDefinition(
    "nextitem_store_memory_bytes", "Memory used by the store; NaN while it does not answer", "livemostrecent"
)
STORE_MEMORY_LIMIT: Final = GaugeDefinition(
    "nextitem_store_memory_limit_bytes",
    "Memory limit of the store, 0 without a limit; NaN while it does not answer",
    "livemostrecent",
)
STORE_LOST_EVENTS: Final = GaugeDefinition(
    "nextitem_store_lost_events",
    "Events and changes of the catalogue that the embedded store has lost, until an operator acknowledges the loss; "
    "NaN while it does not answer",
    "livemostrecent",
)
ARCHIVE_LAST_SUCCESS: Final = GaugeDefinition(
    "nextitem_archive_last_success_timestamp_seconds",
    "Time of the archiver's last successful run, 0 if there was none; NaN while it is unknown",
    "livemostrecent",
)
ARCHIVE_FAILED_RUNS: Final = GaugeDefinition(
    "nextitem_archive_failed_runs",
    "Failed archiver runs since the last successful one, by kind: the store (connection, timeout, refused, data), the "
    "folder (folder, segment, disk), or other",
    "livemostrecent",
    ("kind",),
)
ARCHIVE_PENDING: Final = GaugeDefinition(
    "nextitem_archive_pending_events", "Events in the store's log that are not archived yet", "livemostrecent"
)
ERASURES_PENDING: Final = GaugeDefinition(
    "nextitem_erasures_pending", "Erased users that the archiver has not removed from the archive yet", "livemostrecent"
)
OLDEST_ERASURE: Final = GaugeDefinition(
    "nextitem_erasure_oldest_pending_timestamp_seconds",
    "Time of the oldest erasure that the archiver has not carried out yet, 0 if there is none",
    "livemostrecent",
)
STORE_CLOCK_SKEW: Final = GaugeDefinition(
    "nextitem_store_clock_skew_seconds",
    "Seconds by which the store's clock is ahead of the service's; NaN while unknown",
    "livemostrecent",
)

# The live catalogue.
CATALOGUE_VERSION: Final = GaugeDefinition(
    "nextitem_catalogue_version",
    "Changes of the catalogue that a worker knows, of the one that is furthest behind; 0 before the first change",
    "livemin",
)
CATALOGUE_BEHIND: Final = CounterDefinition(
    "nextitem_catalogue_behind_total",
    "Answers that may lack changes of the catalogue: the store could not be asked in time, or the worker was loading "
    "changes",
)

# The model in use, and its swaps.
MODEL_INFO: Final = GaugeDefinition(
    "nextitem_model_info",
    "1 for the model in use, with its name, version, provider and digest as labels; 0 for one that was in use",
    "livemax",
    ("name", "version", "provider", "digest"),
)
MODEL_TRAINED: Final = GaugeDefinition(
    "nextitem_model_trained_timestamp_seconds", "Time at which the model in use was trained", "livemax"
)
MODEL_RELOADS: Final = CounterDefinition(
    "nextitem_model_reloads_total",
    "Attempts of a worker to serve what the deployment names, by result: swapped; refused, because the bundle cannot "
    "be used; malformed, because the deployment cannot be read",
    ("result",),
)
MODEL_RELOAD_TIMES: Final = HistogramDefinition(
    "nextitem_model_reload_seconds",
    "Time from a worker's notice of another champion to its first answer by it",
    _RELOADS,
)
MODEL_SWAP_PAUSES: Final = HistogramDefinition(
    "nextitem_model_swap_pause_seconds",
    "Longest time that the event loop stood still while a champion was loaded and swapped in",
    _LOOP_LAGS,
)
MODELS_LOADED: Final = GaugeDefinition(
    "nextitem_models_loaded", "Models in memory, of the worker with the most", "livemax"
)
MODEL_REFUSED: Final = GaugeDefinition(
    "nextitem_model_refused", "1 while a worker cannot use the version that should answer, else 0", "livemax"
)
DEPLOYMENT_GENERATION: Final = GaugeDefinition(
    "nextitem_deployment_generation",
    "Generation of the deployment that answers, of the worker that is furthest behind; 0 without a deployment.json",
    "livemin",
)
VARIANT_FALLBACKS: Final = CounterDefinition(
    "nextitem_variant_fallbacks_total",
    "Answers by the champion to users of the candidate, by reason: not_loaded, unpublished (its bundle lacks what the "
    "request needs), breaker_open, full, stopped, slow or failed",
    ("reason",),
)
VARIANT_BREAKERS: Final = CounterDefinition(
    "nextitem_variant_breakers_opened_total",
    "How often a worker took the candidate out of use for a minute, because half of its runs failed or were slow",
)

# Live scores. The judge counts them in live.json; every worker exposes what the file says.
ONLINE_TRIALS: Final = CounterDefinition(
    "nextitem_online_trials_total",
    "Live events whose item was ranked by the model, under the history before them",
    ("variant", "version"),
)
ONLINE_HITS: Final = CounterDefinition(
    "nextitem_online_hits_total",
    "Trials whose item was among the first k",
    ("variant", "version", "k"),
)
ONLINE_GAIN: Final = CounterDefinition(
    "nextitem_online_gain_total",
    "Sum of the gains of trials; divided by nextitem_online_trials_total the mean: ndcg@10, mrr@100",
    ("variant", "version", "metric"),
)
ONLINE_UNKNOWN: Final = CounterDefinition(
    "nextitem_online_unknown_total", "Trials whose item the model does not know", ("variant", "version")
)
ONLINE_OFFLINE: Final = GaugeDefinition(
    "nextitem_online_offline_ndcg",
    "NDCG@10 that the trainer measured of the models that are judged now",
    "livemostrecent",
    ("variant", "version"),
)
ONLINE_SKIPPED: Final = CounterDefinition(
    "nextitem_online_skipped_total", "Live events that were no trial, by reason", ("reason",)
)
ATTRIBUTED: Final = CounterDefinition(
    "nextitem_attributed_total",
    "Events by type that came from an answer of the model, by their recommendation_id; the first of each id",
    ("variant", "version", "type"),
)
TRIAL_E_VALUE: Final = GaugeDefinition(
    "nextitem_trial_e_value",
    "Evidence in the candidate's trial: promote, that it is better; return, that it is worse",
    "livemostrecent",
    ("verdict",),
)
TRIAL_DIFFERENCE: Final = GaugeDefinition(
    "nextitem_trial_difference",
    "NDCG@10 of the candidate less the champion's over paired events: mean, and its interval from low to high",
    "livemostrecent",
    ("bound",),
)
TRIAL_VERDICTS: Final = CounterDefinition(
    "nextitem_trial_verdicts_total",
    "Verdicts that the judge carried out: canary, promote, return, and rollback of a champion whose engine failed",
    ("verdict",),
)
JUDGE_LAG: Final = GaugeDefinition(
    "nextitem_judge_lag_seconds", "Age of the oldest event that waits for the judge", "livemostrecent"
)
JUDGE_TIMESTAMP: Final = GaugeDefinition(
    "nextitem_judge_timestamp_seconds", "Time at which the judge last wrote its scores", "livemostrecent"
)
LIVE_SCORES: Final = (
    ONLINE_TRIALS, ONLINE_HITS, ONLINE_GAIN, ONLINE_UNKNOWN, ONLINE_OFFLINE, ONLINE_SKIPPED, ATTRIBUTED, TRIAL_E_VALUE,
    TRIAL_DIFFERENCE, TRIAL_VERDICTS, JUDGE_LAG, JUDGE_TIMESTAMP,
)  # fmt: skip

# Processes.
WORKERS: Final = GaugeDefinition("nextitem_workers", "Configured worker processes", "livemax")
WORKERS_MISSING: Final = GaugeDefinition(
    "nextitem_workers_missing",
    "Configured worker processes that do not serve: dead and not replaced yet, or unable to start",
    "livemax",
)
WORKER_DEATHS: Final = CounterDefinition(
    "nextitem_worker_deaths_total", "Worker processes that ended unexpectedly, including failed starts"
)
LOOP_LAG: Final = HistogramDefinition(
    "nextitem_event_loop_lag_seconds", "Delay of the event loop, sampled four times a second", _LOOP_LAGS
)
PROCESS_MEMORY: Final = GaugeDefinition(
    "nextitem_process_resident_memory_bytes",
    "Resident memory of all workers together; shared pages count once per worker",
    "livesum",
)
PROCESS_FILES: Final = GaugeDefinition(
    "nextitem_process_open_fds",
    "Open file descriptors, including connections, of the worker with the most",
    "livemax",
)
PROCESS_FILES_LIMIT: Final = GaugeDefinition(
    "nextitem_process_max_fds",
    "Maximum open file descriptors per worker",
    "livemax",  # livemin would show the 0 of a starting worker
)
PROCESS_CPU: Final = CounterDefinition(
    "nextitem_process_cpu_seconds_total",
    "CPU time of all workers together, including workers that have ended",
)
PROCESS_START: Final = GaugeDefinition(
    "nextitem_process_start_time_seconds", "Start time of the worker that started last", "livemax"
)
BUILD_INFO: Final = GaugeDefinition(
    "nextitem_build_info",
    "1 for the running versions of nextitem, Python and ONNX Runtime",
    "livemax",
    ("version", "python", "onnxruntime"),
)
