"""How long answers take, and where the time goes."""

from collections.abc import Iterator
from typing import Final

from deploy.grafana.expressions import (
    QUANTILES,
    Query,
    mean,
    quantile,
    quantiles,
    rate,
    recorded_quantile,
    select,
    shares,
)
from deploy.grafana.names import ANSWERED, HTTP, RECORDED, SLOW_S, STAGE
from deploy.grafana.panels import BLUE, GREEN, GREY, PURPLE, QUANTILE_COLOURS, RED, YELLOW, Look, Panel, show_graph

_STAGE_COLOURS: Final = {"encode": YELLOW, "queue": GREY, "history": BLUE, "inference": GREEN, "respond": PURPLE}


def show_route(name: str) -> Panel:
    """One quantile of every route."""
    q = QUANTILES[name]
    return show_graph(
        f"{name} by route",
        f"""The {name} of a request's time over a minute, from the arrival of its head to the end of its
        answer, errors included; routes without traffic are absent. Normal: single milliseconds for
        /recommend on one CPU, for /events the disk's fsync on top. Trouble shows in the p99 first, in the
        p50 when queues have formed.""",
        "nextitemlatencyhigh",
        Query("{{route}}", recorded_quantile(q, RECORDED, by="route")),
        unit="s",
        look=Look(limit=SLOW_S) if name == "p99" else None,
    )


def show_mean_by_stage() -> Panel:
    """The stages of an answer on top of each other, and the whole."""
    return show_graph(
        "Mean time by stage, and of the whole",
        """Where an answer's time goes: encode (reading the request included), queue (for a batch and for
        the engine), history (the store), inference, respond (decode, write, send). Means are over all
        requests, and a stage that one skipped counts with 0. So they add up to the line, the mean of the
        whole: a gap is a bug of the measurement. Normal: inference leads. A growing
        queue is an engine at its limit, a growing history a slow store, growing encode and respond a CPU
        that others use.""",
        "nextitemlatencyhigh",
        Query("{{stage}}", shares(rate(f"{STAGE}_sum", by="stage"), rate(f"{HTTP}_count", *ANSWERED))),
        Query("the whole", mean(HTTP, *ANSWERED)),
        unit="s",
        look=Look(_STAGE_COLOURS | {"the whole": RED}, stacked=True, total="the whole"),
    )


def show_stage(name: str) -> Panel:
    """One quantile of every stage."""
    q = QUANTILES[name]
    return show_graph(
        f"{name} by stage",
        f"""The {name} of each stage; quantiles do not add up. A stage that a request skipped counts with 0,
        as history without a user or inference for popular items. Normal: all flat. The stage that rises
        alone is where to look.""",
        "nextitemlatencyhigh",
        Query("{{stage}}", quantile(q, STAGE, by="stage")),
        unit="s",
        look=Look(_STAGE_COLOURS),
    )


def show_batches() -> Iterator[Panel]:
    """How the engine keeps up."""
    size = "nextitem_batch_size"
    yield show_graph(
        "Requests in a batch",
        """How many requests shared one model run. Normal: near 1 while there is little to do, more under
        load, which is how load is carried. At --max-batch for long: the engine is at its limit.""",
        "nextitemlatencyhigh",
        Query("mean", mean(size)),
        Query("p99", quantile(0.99, size)),
        unit="short",
        look=Look({"mean": GREEN, "p99": RED}),
    )
    yield show_graph(
        "Requests that wait",
        """How many wait for a batch at the moment of a scrape, all workers together. Normal: 0 to a few. It
        grows without end when more arrive than the engine answers.""",
        "nextitemlatencyhigh",
        Query("waiting", f"sum({select('nextitem_queue_depth')})"),
        unit="short",
        look=Look({"waiting": GREY}),
    )
    yield show_graph(
        "Wait for a batch",
        """How long requests wait for their batch. Normal: at most the time of one batch, since whoever
        waits leaves with the next. More: the engine is behind.""",
        "nextitemlatencyhigh",
        *quantiles("nextitem_queue_wait_seconds"),
        unit="s",
        look=Look(QUANTILE_COLOURS),
    )
