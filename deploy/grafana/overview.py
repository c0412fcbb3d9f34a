"""Whether it is well, and what is asked of it."""

from collections.abc import Iterator

from deploy.grafana.expressions import Query, quantile, rate, ratio, select
from deploy.grafana.names import ANSWERED, CLIENTS, FIRING, HTTP, SLOW_S, STALE_S, UP
from deploy.grafana.panels import (
    GREEN,
    ORANGE,
    PURPLE,
    YELLOW,
    YES_NO,
    Limits,
    Look,
    Panel,
    show_graph,
    show_number,
    show_word,
)


def show_wellness() -> Iterator[Panel]:
    """The row that answers the first question, from left to right."""
    yield show_word(
        "Up",
        """Whether every chosen instance answered its last scrape. Normal: yes. NO for more than some
        seconds: a crash, an overload or a network apart; read the container's log.""",
        "nextitemdown",
        f"min({UP})",
        YES_NO,
    )
    yield show_number(
        "Alerts firing",
        """Rules of deploy/prometheus/rules that fire now; red marks on the graphs say which, and since when.
        Normal: none. Each alert has its section in the runbook.""",
        "alerts",
        f"count({FIRING}) or vector(0)",
        unit="none",
        limits=Limits(1, 1),
        decimals=0,
    )
    yield show_number(
        "Recommendations",
        """Answers of /recommend a second. Normal: what your clients ask for. A fall to nothing while Up is
        yes lies before the service: clients, proxy, DNS.""",
        "what-to-look-at",
        rate("nextitem_recommendations_total"),
        unit="reqps",
    )
    yield show_number(
        "From the model",
        """Share of recommendations that the model made; the others are popular items. Normal: all but the
        share of users whom nobody knows yet. A fall begins with cold starts or with fallbacks: two panels
        below tell which.""",
        "nextitemnomodelanswers",
        ratio(rate("nextitem_recommendations_total", 'source="model"'), rate("nextitem_recommendations_total")),
        unit="percentunit",
        limits=Limits(0.8, 0.5, low_is_bad=True),
        decimals=1,
    )
    yield show_number(
        "p99 of /recommend",
        """One answer in a hundred takes longer, from the head of the request to the end of the answer.
        Normal: some milliseconds over the p50. It climbs first when queues begin to form.""",
        "nextitemlatencyhigh",
        quantile(0.99, HTTP, *ANSWERED),
        unit="s",
        limits=Limits(SLOW_S / 2, SLOW_S),
    )
    failed = rate(f"{HTTP}_count", CLIENTS, 'code=~"5.."')
    yield show_number(
        "Failed requests",
        """Share of the clients' requests that ended with 5xx. Normal: 0. A 503 is a store that is away or a
        process without room; a 500 is a bug, and its traceback stands in the log.""",
        "nextitemstoreerrors",
        ratio(f"({failed} or vector(0))", rate(f"{HTTP}_count", CLIENTS)),
        unit="percentunit",
        limits=Limits(0.001, 0.01),
        decimals=1,
    )
    yield show_number(
        "Age of the model",
        """Since the oldest model in use was trained. Normal: below the rhythm of your trainings. One that
        grows past it means that training, publishing or loading failed.""",
        "nextitemmodelstale",
        f"time() - min({select('nextitem_model_trained_timestamp_seconds')} > 0)",
        unit="s",
        limits=Limits(STALE_S / 2, STALE_S),
    )
    yield show_word(
        "Store durable",
        """Whether the store keeps what it acknowledged: append-only file, fsync always, no eviction.
        Normal: yes. NO is also a store that does not answer.""",
        "nextitemstoreunsafe",
        f"min({select('nextitem_store_durable')})",
        YES_NO,
    )


def show_traffic() -> Iterator[Panel]:
    """What is asked, and what fails."""
    yield show_graph(
        "Requests by route",
        """Requests a second, whatever their answer; health checks and scrapes left out. Normal: the rhythm
        of the day. Watch for a route that stops alone.""",
        "what-to-look-at",
        Query("{{route}}", rate(f"{HTTP}_count", CLIENTS, by="route") + " > 0"),
        unit="reqps",
    )
    yield show_graph(
        "Not answered with 2xx, by route and code",
        """404 and 422 are the clients' faults, 409 a history that was not yet as new as asked for, 499
        clients that left before their answer (too slow for them), 503 the store or a process without room,
        500 a bug. Normal: little, and steady. 499 is the first to rise when answers get slow.""",
        "what-to-look-at",
        Query("{{code}} {{route}}", rate(f"{HTTP}_count", 'code!~"2.."', by="code, route") + " > 0"),
        unit="reqps",
    )
    yield show_graph(
        "Recommendations by source",
        """Answers a second from the model, from neighbours (only while the engine fails, or where a request
        names them), from sequential rules (only where a request names them) and from the popular list. Normal:
        mostly the model. Popular grows with new users, or with trouble: see Answers that could be better.""",
        "nextitemnomodelanswers",
        Query("{{source}}", rate("nextitem_recommendations_total", by="source")),
        unit="reqps",
        look=Look({"model": GREEN, "neighbours": PURPLE, "rules": YELLOW, "popular": ORANGE}, stacked=True),
    )
