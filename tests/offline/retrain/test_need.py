"""When a champion has lost what it had: by the judge's hourly sums."""

from types import SimpleNamespace
from typing import Any

import pytest

from model.contract.deployment.live_scores import LIVE, write_live_scores
from model.contract.deployment.live_sums import LiveScores, Series, Sums
from training.retrain import need
from training.retrain.need import describe_loss, find_need

DAY = 20_000
"""Days since 1970."""


def count(*days):
    """Scores whose days have these mean NDCG@10, of 2,400 trials each; a last day is under way."""
    live = LiveScores()
    for number, mean in enumerate([*days, 0.0]):
        for hour in range(24):
            live.count(Series("champion", "v1"), (DAY + number) * 24 + hour, Sums(trials=100, ndcg=100 * mean))
    return live


@pytest.mark.parametrize(
    ("days", "lost"),
    [
        ((0.30, 0.30, 0.20), True),
        ((0.30, 0.30, 0.29), False),  # not by a tenth
        ((0.030, 0.030, 0.026), False),  # by more than a tenth, which chance can explain
        ((0.30, 0.20), False),  # the first two days are what it is compared with
        ((0.20, 0.20, 0.30), False),
    ],
)
def test_loss_is_said_beyond_chance(days, lost):
    """A day below 90 % of the first two, intervals apart. The day under way says nothing."""
    assert (describe_loss(count(*days), "v1") is not None) is lost


def test_scores_of_another_version_say_nothing(tmp_path, monkeypatch):
    """Nor does a folder without a judge, or a file of a newer one."""
    monkeypatch.setattr(need, "measure_unknown", lambda *_: 0.05)
    champion: Any = SimpleNamespace(version="v2")
    log: Any = None
    assert find_need(tmp_path, champion, log) is None
    write_live_scores(tmp_path, count(0.3, 0.3, 0.1))
    assert find_need(tmp_path, champion, log) is None
    champion.version = "v1"
    assert "fell from 0.3000" in (find_need(tmp_path, champion, log) or "")
    (tmp_path / LIVE).write_text("{}")
    assert find_need(tmp_path, champion, log) is None
