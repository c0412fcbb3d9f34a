"""What the judge has counted, as metrics: read from live.json whenever somebody asks."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from model.contract.deployment.live_scores import LiveScoresMalformed, read_live_scores
from model.contract.deployment.live_sums import VERDICTS, LiveScores
from service.telemetry import definitions
from service.telemetry.definitions import CounterDefinition, GaugeDefinition

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values and value of each."""


class LiveScoresCollector(Collector):
    """Metrics of the judge of one bundle folder. None at all while there is no live.json that can be read."""

    def __init__(self, bundles: Path | None) -> None:
        self._bundles = bundles

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        try:
            scores = read_live_scores(self._bundles) if self._bundles else None
        except LiveScoresMalformed:
            return  # the judge says so, and begins it anew
        if scores is not None:
            yield from _describe(scores)


def _describe(scores: LiveScores) -> Iterator[Metric]:
    totals = scores.totals.items()
    yield _make(definitions.ONLINE_TRIALS, ((series, sums.trials) for series, sums in totals))
    yield _make(definitions.ONLINE_HITS, (((*series, "10"), sums.hits) for series, sums in totals))
    gains = [((*series, "ndcg@10"), sums.ndcg) for series, sums in totals]
    yield _make(definitions.ONLINE_GAIN, [*gains, *(((*series, "mrr@100"), sums.mrr) for series, sums in totals)])
    yield _make(definitions.ONLINE_UNKNOWN, ((series, sums.unknown) for series, sums in totals))
    yield _make(definitions.ONLINE_OFFLINE, scores.offline.items())
    yield _make(definitions.ONLINE_SKIPPED, (((reason,), events) for reason, events in scores.skipped.items()))
    yield _make(
        definitions.ATTRIBUTED, (((*series, kind), events) for (series, kind), events in scores.attributed.items())
    )
    figures = scores.figures
    if figures is not None:
        yield _make(definitions.TRIAL_E_VALUE, (((verdict,), e) for verdict, e in figures.e_values.items()))
        bounds = zip(("mean", "low", "high"), figures.difference or (), strict=False)
        yield _make(definitions.TRIAL_DIFFERENCE, (((bound,), value) for bound, value in bounds))
    verdicts = dict.fromkeys(VERDICTS, 0) | scores.verdicts  # from 0 on: an increase does not see where a series begins
    yield _make(definitions.TRIAL_VERDICTS, (((verdict,), count) for verdict, count in verdicts.items()))
    yield _make(definitions.JUDGE_LAG, [((), scores.lag_s)])
    yield _make(definitions.JUDGE_TIMESTAMP, [((), scores.at_s)])


def _make(definition: CounterDefinition | GaugeDefinition, samples: Samples) -> Metric:
    kind = CounterMetricFamily if isinstance(definition, CounterDefinition) else GaugeMetricFamily
    family = kind(definition.name, definition.help, labels=definition.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
