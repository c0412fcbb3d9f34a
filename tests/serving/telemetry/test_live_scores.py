"""The judge's sums as metrics: those of live.json, and none without it."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from model.contract.deployment.live_scores import LIVE, write_live_scores
from model.contract.deployment.live_sums import LiveScores, Series, Sums, TrialFigures
from service.telemetry.definitions import LIVE_SCORES
from service.telemetry.metrics import Metrics


def expose(bundles: Path | None) -> dict[tuple[str, frozenset], float]:
    """The values of live scores by name and labels."""
    metrics = Metrics(event_types=["view"], model_version="v", routes=[], bundles=bundles)
    names = tuple(definition.name.removesuffix("_total") for definition in LIVE_SCORES)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.expose().decode())
        if family.name in names
        for sample in family.samples
    }


def test_metrics_say_what_the_file_says(tmp_path):
    """Each of them."""
    scores = LiveScores(at_s=1000.0, lag_s=2.5, verdicts={"promote": 1})
    scores.count(Series("champion", "a"), 5, Sums(100, 30, 12.5, 10.25, 4))
    scores.skip("late", 7)
    scores.attribute(Series("candidate", "b"), "cart")
    scores.offline = {Series("champion", "a"): 0.2}
    scores.figures = TrialFigures({"promote": 21.0, "return": 0.5}, (0.1, 0.05, 0.15), 100)
    write_live_scores(tmp_path, scores)
    found = expose(tmp_path)
    champion = {"variant": "champion", "version": "a"}
    for name, labels, value in (
        ("online_trials_total", champion, 100),
        ("online_hits_total", champion | {"k": "10"}, 30),
        ("online_gain_total", champion | {"metric": "ndcg@10"}, 12.5),
        ("online_gain_total", champion | {"metric": "mrr@100"}, 10.25),
        ("online_unknown_total", champion, 4),
        ("online_offline_ndcg", champion, 0.2),
        ("online_skipped_total", {"reason": "late"}, 7),
        ("online_skipped_total", {"reason": "behind"}, 0),
        ("attributed_total", {"variant": "candidate", "version": "b", "type": "cart"}, 1),
        ("trial_e_value", {"verdict": "promote"}, 21),
        ("trial_difference", {"bound": "low"}, 0.05),
        ("trial_verdicts_total", {"verdict": "promote"}, 1),
        ("trial_verdicts_total", {"verdict": "return"}, 0),
        ("trial_verdicts_total", {"verdict": "rollback"}, 0),
        ("judge_lag_seconds", {}, 2.5),
        ("judge_timestamp_seconds", {}, 1000),
    ):
        assert found[f"nextitem_{name}", frozenset(labels.items())] == value
    assert {name for name, _ in found} == {definition.name for definition in LIVE_SCORES}


def test_no_file_no_metrics(tmp_path):
    """Nor with one that cannot be read, nor for a single bundle."""
    assert expose(None) == {}
    assert expose(tmp_path) == {}
    (tmp_path / LIVE).write_text("{")
    assert expose(tmp_path) == {}
