"""The service's own processes: what they take of the machine, and whether all of them are there."""

from collections.abc import Iterator

from deploy.grafana.expressions import Query, quantiles, rate, select
from deploy.grafana.names import DESCRIPTORS, LOOP_LAG_S, STARTED
from deploy.grafana.panels import QUANTILE_COLOURS, Look, Panel, show_graph, show_table


def show_resources() -> Iterator[Panel]:
    """What could run out."""
    yield show_graph(
        "Memory, by instance",
        """Resident memory of all processes of an instance. Normal: flat some minutes after the start, a model for each
        worker. A slope that does not end is a leak; at the container's limit the kernel kills a worker.""",
        "nextitemworkersdie",
        Query("{{instance}}", f"sum by (instance) ({select('nextitem_process_resident_memory_bytes')})"),
        unit="bytes",
    )
    yield show_graph(
        "Processor time, by instance",
        """Cores that the processes of an instance keep busy. Normal: it follows the traffic, well below --workers
        and the container's limit. At either, requests begin to queue.""",
        "nextitemeventloopslow",
        Query("{{instance}}", rate("nextitem_process_cpu_seconds_total", by="instance")),
        unit="short",
    )
    opened, allowed = select("nextitem_process_open_fds"), select("nextitem_process_max_fds")
    yield show_graph(
        "Descriptors, by instance",
        f"""File descriptors that the fullest process has open, of those that it may have. Normal: a few per cent, and
        one for each connection. From {DESCRIPTORS:.0%} on the alert begins; at 100 % no connection is taken.""",
        "nextitemdescriptorsnearlyexhausted",
        Query("{{instance}}", f"max by (instance) ({opened} / {allowed})"),
        unit="percentunit",
        look=Look(limit=DESCRIPTORS),
    )
    yield show_graph(
        "Event loop lag",
        """How late the event loop comes to what is due, all workers together. Normal: a few milliseconds. A p99 above
        the line is a CPU that is short, or something that holds the loop; nothing is answered meanwhile.""",
        "nextitemeventloopslow",
        *quantiles("nextitem_event_loop_lag_seconds"),
        unit="s",
        look=Look(QUANTILE_COLOURS, limit=LOOP_LAG_S),
    )


def show_processes() -> Iterator[Panel]:
    """Who is there, and who is not."""
    yield show_graph(
        "Connections, by instance",
        """Open connections of clients. Normal: as many as your proxy or clients keep open. A growth without end is
        clients that do not close, and ends at the limit of descriptors.""",
        "nextitemdescriptorsnearlyexhausted",
        Query("{{instance}}", f"sum by (instance) ({select('nextitem_http_connections')})"),
        unit="short",
    )
    yield show_graph(
        "Workers missing",
        """Workers that should serve and do not. Normal: 0, for seconds more after one died or while workers are
        replaced. Longer: the next one cannot start, and the log says why.""",
        "nextitemworkermissing",
        Query("{{instance}}", f"sum by (instance) ({select('nextitem_workers_missing')})"),
        unit="short",
    )
    yield show_graph(
        "Workers that died",
        """Those that ended without being told to, since the service started. Normal: 0. The log has the exit status
        of each; three within an hour begin the alert.""",
        "nextitemworkersdie",
        Query("{{instance}}", f"sum by (instance) ({select('nextitem_worker_deaths_total')})"),
        unit="short",
    )
    build = f"max by (instance, version, python, onnxruntime) ({select('nextitem_build_info')})"
    yield show_table(
        "Build in use",
        """What each instance runs, and since when its youngest worker does. Normal: one version everywhere; two
        are a roll-out that stands still. Red marks on the graphs are alerts, blue ones starts of workers,
        green ones models.""",
        "what-to-look-at",
        f"{build} * on (instance) group_left () (time() - min by (instance) ({STARTED}))",
        columns=["instance", "version", "python", "onnxruntime"],
        value="up for",
        unit="s",
    )
