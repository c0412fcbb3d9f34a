"""Whether a retraining is needed: too many events of unknown items, or a champion that lost what it had."""

import math
from collections import defaultdict
from pathlib import Path

import numpy as np

from model.contract.deployment.live_scores import LiveScoresMalformed, read_live_scores
from model.contract.deployment.live_sums import LiveScores, Sums
from model.contract.vocabulary import UNKNOWN
from training.data.interactions import Log
from training.retrain.champion import Champion

MOST_UNKNOWN = 0.05
"""Share of the newest day's events whose item the champion does not know."""
LEAST_KEPT = 0.9
"""Share of the live NDCG@10 of its first two days that a champion keeps."""
_DAY_MS = 86_400_000
_DAY_H = 24
_Z = 1.959964
"""Standard deviations on either side of a mean that hold 95 %."""


def find_need(root: Path, champion: Champion, log: Log) -> str | None:
    """Why the champion should be retrained, or None. Reads live.json where a judge writes it."""
    unknown = measure_unknown(champion, log)
    if unknown > MOST_UNKNOWN:
        return f"{unknown:.1%} of the newest day's events are of items that the champion does not know"
    try:
        live = read_live_scores(root)
    except LiveScoresMalformed:
        return None
    return None if live is None else describe_loss(live, champion.version)


def measure_unknown(champion: Champion, log: Log) -> float:
    """The share of the newest day's events whose item the champion does not know."""
    assert log.timestamps_ms is not None  # noqa: S101 - without times nothing is new, and nobody asks
    newest = log.timestamps_ms > log.timestamps_ms.max() - _DAY_MS
    known = np.append(UNKNOWN, champion.bundle.vocabulary.encode(log.vocabulary.item_ids)) != UNKNOWN
    return float(1 - known[log.items[newest]].mean())


def describe_loss(live: LiveScores, version: str) -> str | None:
    """Say by how much the version's last whole day fell below its first two, if beyond chance."""
    days: defaultdict[int, Sums] = defaultdict(Sums)
    for (hour, series), sums in live.hours.items():
        if series.version == version:
            days[hour // _DAY_H].add(sums)
    whole = sorted(days)[:-1]  # the last one is still under way
    if len(whole) < 3:
        return None
    first, last = Sums(), days[whole[-1]]
    for day in whole[:2]:
        first.add(days[day])
    if not first.trials or not last.trials:
        return None
    before, now = first.ndcg / first.trials, last.ndcg / last.trials
    if now >= LEAST_KEPT * before or now + _reach(last) >= before - _reach(first):
        return None
    return f"the champion's live NDCG@10 fell from {before:.4f} in its first two days to {now:.4f}"


def _reach(sums: Sums) -> float:
    """Half the width of the 95 % interval of a mean NDCG@10, at most: gains in [0, 1] vary at most as much as hits."""
    mean = sums.ndcg / sums.trials
    return _Z * math.sqrt(mean * (1 - mean) / sums.trials)
