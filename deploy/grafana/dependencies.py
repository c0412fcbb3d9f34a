"""What the service stands on: the store and the model."""

from collections.abc import Iterator

from deploy.grafana.expressions import Query, quantile, rate, select
from deploy.grafana.names import STALE_S, UP
from deploy.grafana.panels import (
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    RED,
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
        read-only, loading, no permission), unsafe (it may lose events), script (all else). Normal: 0.""",
        "nextitemstoreerrors",
        Query("{{kind}}", rate("nextitem_store_errors_total", by="kind")),
        unit="cps",
        look=Look(
            {"connection": RED, "timeout": ORANGE, "refused": PURPLE, "unsafe": BLUE, "script": GREY}, stacked=True
        ),
    )
    yield show_graph(
        "Memory against its limit",
        """What the store uses and may use; without a limit there is no line for it. Normal: growth
        with every event, since the log keeps all; the slope tells when there will be no room left. At the
        limit the store refuses events.""",
        "nextitemstorenearlyfull",
        Query("used", f"max({select('nextitem_store_memory_bytes')})"),
        Query("limit", f"max({select('nextitem_store_memory_limit_bytes')}) > 0"),
        unit="bytes",
        look=Look({"used": BLUE, "limit": RED}),
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
