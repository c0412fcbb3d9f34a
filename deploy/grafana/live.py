"""The life of a model: who answers, how well live, and what a candidate's trial says."""

from collections.abc import Iterator

from deploy.grafana.expressions import Query, rate, select
from deploy.grafana.names import JUDGE_SILENT_S
from deploy.grafana.panels import BLUE, GREEN, ORANGE, PURPLE, RED, Look, Panel, show_graph, show_states

_SIDES = "variant, version"
_COLOURS = {"champion": GREEN, "candidate": BLUE}
REFUSED = {0: ("in use", GREEN), 1: ("REFUSED", RED)}


def show_live() -> Iterator[Panel]:
    """What live events say. Every instance repeats the judge's file, so that the highest is taken, not the sum."""
    yield show_states(
        "Versions that answer",
        """Each version in use, over time, and red while an instance cannot use the version that should answer.
        Normal: one bar at a time, in green. Two at once for longer than a minute: instances follow different
        folders.""",
        "nextitemmodelrefused",
        Query("{{version}}", f"max by (version) ({select('nextitem_model_info')} == 1) - 1"),
        Query("{{instance}}", f"max by (instance) ({select('nextitem_model_refused')})"),
        words=REFUSED,
    )
    trials = _gain("nextitem_online_trials_total")
    ndcg = _gain("nextitem_online_gain_total", 'metric="ndcg@10"')
    yield show_graph(
        "Live NDCG@10, and offline",
        """How well live events are ranked under the history before them, by the champion and a candidate, and what
        the trainer measured of each. Normal: steady, and near the offline value. A slow fall asks for a training; a
        sudden one for a look at what changed in the events.""",
        "nextitemlivequalityfell",
        Query("{{variant}}", f"sum by (variant) ({ndcg}) / (sum by (variant) ({trials}) > 0)"),
        Query("{{variant}} offline", f"max by (variant) ({select('nextitem_online_offline_ndcg')})"),
        unit="short",
        look=Look({**_COLOURS, "champion offline": ORANGE, "candidate offline": PURPLE}),
    )
    answers = rate("nextitem_recommendations_total", 'source="model"', by="variant")
    yield show_graph(
        "Events that came from an answer",
        """Events that name the recommendation they came from, the first of each, as a share of the model's answers: the
        click rate, where events are clicks. Normal: steady, and alike for both variants or better for the candidate.
        Empty while clients send no recommendation ids.""",
        "what-to-look-at",
        Query("{{variant}}", f"{_attributed()} / ({answers} > 0)"),
        unit="percentunit",
        look=Look(_COLOURS),
    )
    yield show_graph(
        "Swaps and refusals",
        """What workers made of changed deployments, each worker counted, since they started, and the models in
        memory of the worker that has the most. Normal: swaps alone; 1 model, 2 in a canary or while one is loaded,
        and 1 more for each version of --also-serve.""",
        "nextitemmodelrefused",
        Query("{{result}}", f"sum by (result) ({select('nextitem_model_reloads_total')})"),
        Query("models in memory", f"max({select('nextitem_models_loaded')})"),
        unit="short",
        look=Look({"swapped": GREEN, "refused": RED, "malformed": ORANGE, "models in memory": BLUE}),
    )
    yield show_graph(
        "Longest pause of a swap",
        """How long the event loop of a worker stood still at most while a champion was loaded and swapped in, since
        the workers started, to the next bound of the histogram. Normal: some tens of milliseconds; new workers load a
        large model instead, one by one.""",
        "nextitemeventloopslow",
        Query(
            "pause", f"histogram_quantile(1, sum by (le) ({select('nextitem_model_swap_pause_seconds_bucket')})) >= 0"
        ),
        unit="s",
        look=Look({"pause": ORANGE}),
    )


def show_trial() -> Iterator[Panel]:
    """What a candidate's trial says, and who serves the candidate's users."""
    yield show_graph(
        "Evidence, as powers of ten",
        """The candidate's trial: evidence that it is better (promote) and that it is worse (return). Normal: both below
        the line, an e-value of 20, until one of them is proven. Empty without a candidate.""",
        "what-to-look-at",
        Query("{{verdict}}", f"max by (verdict) (log10({select('nextitem_trial_e_value')} > 0))"),
        unit="short",
        look=Look({"promote": GREEN, "return": RED}, limit=1.301, signed=True),
    )
    yield show_graph(
        "Candidate less champion, NDCG@10",
        """The mean difference over paired events, and its interval, which holds at any time. Normal: the interval
        narrows with the events. Above 0 the candidate is better. Empty without a candidate.""",
        "what-to-look-at",
        Query("{{bound}}", f"max by (bound) ({select('nextitem_trial_difference')})"),
        unit="short",
        look=Look({"mean": BLUE, "low": ORANGE, "high": GREEN}, signed=True),
    )
    yield show_graph(
        "Champion instead of candidate, by reason",
        """Answers by the champion to users of the candidate. Normal: none, but for some while it is being loaded. Many
        make the candidate's answers fewer than its share; a breaker that opens returns it.""",
        "nextitemcandidatereturned",
        Query("{{reason}}", rate("nextitem_variant_fallbacks_total", by="reason")),
        unit="reqps",
    )
    yield show_graph(
        "How long ago the judge wrote",
        f"""Since the judge last wrote its scores, and the age of the oldest event that waits for it. Normal: a few
        seconds. Above {JUDGE_SILENT_S // 60} minutes the alert begins; many skipped events are a judge that has no
        time, which harms nobody.""",
        "nextitemjudgesilent",
        Query("written", f"time() - max({select('nextitem_judge_timestamp_seconds')})"),
        Query("waiting", f"max({select('nextitem_judge_lag_seconds')})"),
        unit="s",
        look=Look({"written": BLUE, "waiting": ORANGE}, limit=JUDGE_SILENT_S),
    )


def _attributed() -> str:
    """Attributed events a second by variant."""
    found = f"rate({select('nextitem_attributed_total')}[$__rate_interval])"
    return f"sum by (variant) (max by ({_SIDES}, type) ({found}))"


def _gain(metric: str, *matchers: str) -> str:
    return f"max by ({_SIDES}) (rate({select(metric, *matchers)}[$__rate_interval]))"
