"""What became of events, and of answers."""

from collections.abc import Iterator

from deploy.grafana.expressions import Query, quantiles, rate, ratio, shares
from deploy.grafana.names import FALLBACKS, HTTP, SHED
from deploy.grafana.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, QUANTILE_COLOURS, RED, Look, Panel, show_graph


def show_events() -> Iterator[Panel]:
    """What comes in."""
    yield show_graph(
        "Events by result",
        """Events a second. Normal: accepted, and duplicates where clients send again. Rejected ones are a
        client's bug: the answer tells it which and why. Duplicates that rise sharply: clients get no answer
        in time and try again.""",
        "what-to-look-at",
        Query("{{result}}", rate("nextitem_events_total", by="result")),
        unit="cps",
        look=Look({"accepted": GREEN, "duplicate": BLUE, "rejected": RED}, stacked=True),
    )
    yield show_graph(
        "From event to acceptance",
        """How old events are when they are accepted, by the clients' clocks. Normal: your pipeline's delay.
        A rise is a pipeline that falls behind, or a replay; recommendations then lag behind the users.""",
        "what-to-look-at",
        *quantiles("nextitem_event_lag_seconds"),
        unit="s",
        look=Look(QUANTILE_COLOURS),
    )
    yield show_graph(
        "Late events",
        """Accepted events older than everything in a full history: logged, but of no effect on answers.
        Normal: none but in replays. Many: events arrive out of order, or --history-length is small.""",
        "what-to-look-at",
        Query("late", rate("nextitem_events_late_total")),
        unit="cps",
        look=Look({"late": ORANGE}),
    )


def show_compromises() -> Iterator[Panel]:
    """What was answered, but not as well as one would like."""
    answers, fallbacks = "nextitem_recommendations_total", "nextitem_fallbacks_total"
    yield show_graph(
        "Share of fallbacks, by reason",
        f"""Recommendations that are worse than they should be, and why: the store or the engine was away,
        time ran out (deadline), or too many waited already (overloaded). Normal: 0. Above {FALLBACKS:.0%} the
        alert begins.""",
        "nextitemfallbackshigh",
        Query("{{reason}}", shares(rate(fallbacks, by="reason"), rate(answers))),
        unit="percentunit",
        look=Look(
            {"store_unavailable": BLUE, "engine_unavailable": RED, "deadline": ORANGE, "overloaded": PURPLE},
            stacked=True,
            limit=FALLBACKS,
        ),
    )
    yield show_graph(
        "Share without room, by reason",
        f"""Requests for which there was no room: a full queue of the model answered with popular items
        (queue_full), a process with all that it may hold refused with 503 (requests_full, batches_full,
        events_full), or with 409 who would wait for a history (waiters_full). Normal: 0. Above {SHED:.0%} the
        alert begins.""",
        "nextitemoverloaded",
        Query("{{reason}}", shares(rate("nextitem_shed_total", by="reason"), rate(f"{HTTP}_count"))),
        unit="percentunit",
        look=Look(
            {
                "queue_full": PURPLE,
                "requests_full": RED,
                "batches_full": ORANGE,
                "events_full": GREY,
                "waiters_full": BLUE,
            },
            stacked=True,
            limit=SHED,
        ),
    )
    popular = rate(answers, 'source="popular"')
    yield show_graph(
        "Share of cold starts",
        """Popular items for want of any known item: new users, or a catalogue that the model has not
        learnt. While fallbacks occur this is a lower bound. Normal: the share of new users. A jump: events
        do not arrive, or the model's catalogue is another one.""",
        "nextitemnomodelanswers",
        Query("cold starts", ratio(f"clamp_min({popular} - {rate(fallbacks)}, 0)", rate(answers))),
        unit="percentunit",
        look=Look({"cold starts": ORANGE}),
    )
    yield show_graph(
        "Unknown items",
        """Items that the model does not know, counted when an accepted event holds one and when a request
        names one. Normal: new items since the last training. A steady growth asks for a training, a jump
        after a new model for a look at what it was trained on.""",
        "nextitemmodelstale",
        Query("unknown", rate("nextitem_unknown_items_total")),
        unit="cps",
        look=Look({"unknown": PURPLE}),
    )
