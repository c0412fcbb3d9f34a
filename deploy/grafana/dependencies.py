"""What the service stands on: the store and the model."""

from collections.abc import Iterator

from deploy.grafana.expressions import Query, quantile, rate, select
from deploy.grafana.names import NOT_ARCHIVED_S, NOT_ERASED_S, SKEW_S, STALE_S, UP
from deploy.grafana.panels import (
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    YES_NO,
    Look,
    Panel,
    show_graph,
    show_states,
    show_table,
)


def show_store() -> Iterator[Panel]:
    """Where the histories are."""
    yield show_graph(
        "p99 of calls, by operation",
        """One call in a hundred takes longer. Normal: read and ping well below a millisecond on one
        machine, append the disk's fsync. Appends that slow down alone: the disk. All of them: the store's
        CPU, or the network.""",
        "nextitemstoreerrors",
        Query("{{op}}", quantile(0.99, "nextitem_store_duration_seconds", by="op")),
        unit="s",
    )
    yield show_graph(
        "Errors by kind",
        """Failed calls a second: connection (none to be had), timeout (no answer in time), refused (full,
        read-only, loading, no permission), unsafe (it may lose events), damaged (single users' keys), script (all
        else). Normal: 0.""",
        "nextitemstoreerrors",
        Query("{{kind}}", rate("nextitem_store_errors_total", by="kind")),
        unit="cps",
        look=Look(
            {
                "connection": RED,
                "timeout": ORANGE,
                "refused": PURPLE,
                "unsafe": BLUE,
                "damaged": YELLOW,
                "script": GREY,
            },
            stacked=True,
        ),
    )
    yield show_graph(
        "Memory against its limit",
        """What the store uses and may use; without a limit there is no line for it. Normal: growth
        with every event, and a fall with each archiving; the slope of the lows tells when there will be no
        room left. At the limit the store refuses events until the log is archived.""",
        "nextitemstorenearlyfull",
        Query("used", f"max({select('nextitem_store_memory_bytes')})"),
        Query("limit", f"max({select('nextitem_store_memory_limit_bytes')}) > 0"),
        unit="bytes",
        look=Look({"used": BLUE, "limit": RED}),
    )
    yield show_graph(
        "Clock skew",
        f"""How far the clocks of service and store are apart, whichever is ahead. Normal: milliseconds. Above
        {SKEW_S} s the alert begins: timestamps are then judged, and histories expire, by a wrong clock.""",
        "nextitemclockskew",
        Query("skew", f"max(abs({select('nextitem_store_clock_skew_seconds')}))"),
        unit="s",
        look=Look({"skew": ORANGE}, limit=SKEW_S),
    )
    yield show_states(
        "Up and durable",
        """Each instance's scrapes, and whether it finds the store durable. Normal: green throughout. Red in
        both at once is the service, red in durable alone the store or its settings.""",
        "nextitemstoreunsafe",
        Query("{{instance}} up", f"min by (instance) ({UP})"),
        Query("{{instance}} durable", f"min by (instance) ({select('nextitem_store_durable')})"),
        words=YES_NO,
    )


def show_archive() -> Iterator[Panel]:
    """Whether the log leaves the store, and the erased leave the archive."""
    yield show_graph(
        "Since the last archiving",
        f"""Since the archiver last moved everything and erased whoever was to be. Normal: a saw tooth as high as
        --archive-minutes. Above {NOT_ARCHIVED_S // 3600} hours the alert begins; without a line it never succeeded.""",
        "nextitemarchivestale",
        Query("since", f"time() - max({select('nextitem_archive_last_success_timestamp_seconds')} > 0)"),
        unit="s",
        look=Look({"since": BLUE}, limit=NOT_ARCHIVED_S),
    )
    yield show_graph(
        "Events not archived yet",
        """In the store's log, which is memory. Normal: a saw tooth that falls to near 0 with each archiving. A
        line that only grows ends at the store's limit.""",
        "nextitemarchivestale",
        Query("events", f"max({select('nextitem_archive_pending_events')})"),
        unit="short",
        look=Look({"events": GREY}),
    )
    yield show_graph(
        "Archive runs that failed, by kind",
        """Since the last one that succeeded. Normal: 0. Two in a row begin the alert; the archiver's log says why
        each time.""",
        "nextitemarchivefails",
        Query("{{kind}}", f"max by (kind) ({select('nextitem_archive_failed_runs')})"),
        unit="short",
    )
    oldest = select("nextitem_erasure_oldest_pending_timestamp_seconds")
    yield show_graph(
        "Oldest erasure that is not done",
        """Since the first user was erased who is still in the archive. Normal: nothing, or less than
        --archive-minutes. Above 24 hours a promise is broken, and the alert begins.""",
        "nextitemerasureoverdue",
        Query("oldest", f"time() - min({oldest} > 0)"),
        unit="s",
        look=Look({"oldest": RED}, limit=NOT_ERASED_S),
    )
    yield show_graph(
        "Erasures not done",
        """Users who were erased and are still in the archive. Normal: 0 after each archiving.""",
        "nextitemerasureoverdue",
        Query("users", f"max({select('nextitem_erasures_pending')})"),
        unit="short",
        look=Look({"users": PURPLE}),
    )


def show_model() -> Iterator[Panel]:
    """What answers."""
    trained = select("nextitem_model_trained_timestamp_seconds")
    yield show_table(
        "Model in use",
        """What each instance answers from, and on which provider of ONNX Runtime. Normal: one version
        everywhere, and the provider that you paid for; CPUExecutionProvider on a machine with a GPU is a
        driver that was not found.""",
        "nextitemmodelstale",
        f"{select('nextitem_model_info')} * on (job, instance) group_left () (time() - ({trained} > 0))",
        columns=["instance", "name", "version", "provider"],
        value="age",
        unit="s",
    )
    yield show_graph(
        "Age of the model, by instance",
        """Since the model in use was trained. Normal: a saw tooth in the rhythm of your
        trainings; instances that part have not all loaded the same.""",
        "nextitemmodelstale",
        Query("{{instance}}", f"time() - ({trained} > 0)"),
        unit="s",
        look=Look(limit=STALE_S),
    )
