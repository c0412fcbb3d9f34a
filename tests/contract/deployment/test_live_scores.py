"""live.json: written and read alike, bounded, and refused with a sentence when it is anything else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.contract.deployment.live_scores import (
    LIVE,
    LIVE_MAX_BYTES,
    LiveScoresMalformed,
    decode,
    encode,
    read_live_scores,
    write_live_scores,
)
from model.contract.deployment.live_sums import (
    HOURS_KEPT,
    SERIES_KEPT,
    SKIPS,
    Cursor,
    LiveScores,
    Series,
    Sums,
    TrialFigures,
)


@st.composite
def sums(draw):
    """Sums that trials can give."""
    trials = draw(st.integers(0, 10**9))
    counts = st.integers(0, trials)
    gains = st.floats(0, trials).map(lambda gain: round(gain, 6))
    return Sums(trials, draw(counts), draw(gains), draw(gains), draw(counts))


VERSIONS = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z._-]{0,20}", fullmatch=True)
SERIES = st.builds(Series, st.sampled_from(["champion", "candidate"]), VERSIONS)
COUNTS = st.integers(0, 10**12)
TEXTS = st.text(max_size=20)
SCORES = st.builds(
    LiveScores,
    cursors=st.dictionaries(st.integers(0, 63), st.builds(Cursor, st.just("1795394600329-7"), COUNTS), max_size=4),
    totals=st.dictionaries(SERIES, sums(), max_size=3),
    hours=st.dictionaries(st.tuples(st.integers(0, 10**6), SERIES), sums(), max_size=5),
    skipped=st.fixed_dictionaries(dict.fromkeys(SKIPS, COUNTS)),
    attributed=st.dictionaries(st.tuples(SERIES, TEXTS), COUNTS, max_size=3),
    trial=st.none() | st.dictionaries(TEXTS, COUNTS, max_size=3),
    figures=st.none()
    | st.builds(
        TrialFigures,
        e_values=st.dictionaries(TEXTS, st.floats(0, 1e300), max_size=2),
        difference=st.none() | st.tuples(*[st.floats(-1, 1)] * 3),
        pairs=COUNTS,
    ),
    verdicts=st.dictionaries(TEXTS, COUNTS, max_size=3),
    refused=st.dictionaries(TEXTS, TEXTS, max_size=3),
    loading=st.dictionaries(TEXTS, COUNTS, max_size=2),
    offline=st.dictionaries(SERIES, st.floats(0, 1), max_size=2),
    lag_s=st.integers(0, 1000).map(float),
    at_s=st.integers(0, 10**10).map(float),
)


FIELDS = [name for name in json.loads(encode(LiveScores())) if name != "format"]


@settings(max_examples=40, deadline=None)
@given(SCORES)
def test_what_is_written_is_read(scores):
    """All of it."""
    assert decode(encode(scores)) == scores


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("wrong", [None, "text", -1, [[["x"]]], {"a": -1}], ids=str)
def test_any_wrong_field_is_named(name, wrong):
    """Missing, or of another kind."""
    document = json.loads(encode(LiveScores()))
    assert set(document) == {"format", *FIELDS}
    del document[name]
    if wrong is not None:
        document[name] = wrong
    allowed = name == "trial" and isinstance(wrong, dict), name == "skipped" and isinstance(wrong, dict)
    if any(allowed):
        assert decode(json.dumps(document).encode())
    else:
        with pytest.raises(LiveScoresMalformed, match=f"'{name}' is missing or malformed"):
            decode(json.dumps(document).encode())


def test_file_stays_small():
    """With as much as it ever holds: the oldest hours give way."""
    scores = LiveScores(skipped=dict.fromkeys(SKIPS, 10**9))
    scores.cursors = {partition: Cursor("1795394600329-123456", 10**9) for partition in range(64)}
    for hour in range(300):
        for number in range(4):
            scores.count(Series("candidate", f"{'v' * 50}-{number}-{hour // 4}"), hour, Sums(10**6, 10, 0.5, 0.25, 3))
    scores.trial = {"state": "x" * 4000}
    scores.prune(299)
    content = encode(scores)
    assert len(content) <= LIVE_MAX_BYTES
    read = decode(content)
    assert len(read.totals) == SERIES_KEPT
    hours = [hour for hour, _ in read.hours]
    assert max(hours) == 299
    assert min(hours) > 299 - HOURS_KEPT
    scores.trial = {"state": "x" * LIVE_MAX_BYTES}
    with pytest.raises(LiveScoresMalformed, match="would be larger"):
        encode(scores)


def test_file_in_a_folder(tmp_path):
    """There or not, too large, no file, and no JSON."""
    assert read_live_scores(tmp_path) is None
    scores = LiveScores(at_s=5.0)
    write_live_scores(tmp_path, scores)
    assert read_live_scores(tmp_path) == scores
    for content, said in (
        (b"x" * (LIVE_MAX_BYTES + 1), "larger"),
        (b"{", "not JSON"),
        (b"[]", "format 1"),
        (b'{"format": 2}', "format 1"),
        (b"[" * 5000, "not JSON"),
    ):
        (tmp_path / LIVE).write_bytes(content)
        with pytest.raises(LiveScoresMalformed, match=said):
            read_live_scores(tmp_path)
    (tmp_path / LIVE).unlink()
    (tmp_path / LIVE).mkdir()
    with pytest.raises(LiveScoresMalformed, match="cannot be read"):
        read_live_scores(tmp_path)


def test_sums_over_hours():
    """Of one version, whatever it was then, from an hour on."""
    scores = LiveScores()
    scores.count(Series("candidate", "a"), 1, Sums(1, 1, 1.0, 1.0, 0))
    scores.count(Series("champion", "a"), 2, Sums(2, 1, 0.5, 1.0, 1))
    scores.count(Series("champion", "b"), 2, Sums(7, 0, 0.0, 0.0, 0))
    assert scores.sum_hours("a") == Sums(3, 2, 1.5, 2.0, 1)
    assert scores.sum_hours("a", since_hour=2) == Sums(2, 1, 0.5, 1.0, 1)
