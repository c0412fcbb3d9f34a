"""A candidate's trial on live events: promoted, returned, or only told of; and goes on after a restart."""

from dataclasses import replace

import pytest

from model.contract.deployment.changes import set_share
from model.contract.deployment.document import read_deployment
from model.contract.deployment.journal import last_entry, verify_journal
from model.contract.deployment.live_scores import read_live_scores
from model.contract.deployment.writer import change_deployment
from service.judge import trial_keeper
from service.ranking.recommendation_id import RecommendationIds
from service.recommend.assignment import assign
from service.store.event import make_event

CHAMPION, CANDIDATE = "20261121T101500-tiny", "20261122T101500-other"
LIKED_BY_CANDIDATE = ("{07}:*", "x/history", "i12")
LIKED_BY_CHAMPION = ("i02", "x/history")
"""The first places of each one's popular list, where users without a history find them."""


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """The trial is looked at whenever events were read."""
    monkeypatch.setattr(trial_keeper, "DECIDE_S", 0.0)


@pytest.fixture
def set_terms(root, candidate):
    """Change the terms of the candidate's trial."""
    assert read_deployment(root).candidate == candidate

    def change(**terms):
        def apply(now):
            return replace(now, trial=replace(now.trial, **terms))

        return change_deployment(root, apply, action="terms", by="test")

    change(min_trials=40, min_hours=0.0, min_answers=0, path="shadow")
    return change


def make_visits(items, count, *, start=0, ids=lambda _: None):
    """First events of new users."""
    return [
        make_event(
            user_id=f"v{number}",
            item_id=items[number % len(items)],
            event_type="view",
            event_id=f"e{number}",
            now_ms=1_763_719_498_000 + number,
            recommendation_id=ids(f"v{number}"),
        )
        for number in range(start, start + count)
    ]


def judge_all(with_judge, events, **options):
    """Store events, and have them judged."""

    async def scenario(bench):
        await bench.store.append(events)
        await bench.judge.run_once()
        return bench.scores

    return with_judge(scenario, **options)


@pytest.mark.usefixtures("set_terms")
def test_better_candidate_is_promoted(with_judge, root):
    """Over paired events whose items it ranks higher; the journal says why."""
    scores = judge_all(with_judge, make_visits(LIKED_BY_CANDIDATE, 100))
    deployment = read_deployment(root)
    assert (deployment.champion, deployment.candidate) == (CANDIDATE, None)
    entry = last_entry(root)
    assert entry is not None
    assert (entry["by"], entry["action"]) == ("judge", "promote")
    assert entry["evidence"]["home"] == 100
    assert "shown better" in entry["why"]
    assert verify_journal(root) is None
    assert scores.verdicts == {"promote": 1}


@pytest.mark.usefixtures("set_terms")
def test_worse_candidate_is_returned(with_judge, root):
    """The champion stays."""
    scores = judge_all(with_judge, make_visits(LIKED_BY_CHAMPION, 150))
    deployment = read_deployment(root)
    assert (deployment.champion, deployment.candidate) == (CHAMPION, None)
    assert scores.verdicts == {"return": 1}


def test_shadow_leads_to_canary(with_judge, root, set_terms):
    """On the usual path; the salt stays, so that the users are those that were drawn."""
    set_terms(path="canary")
    salt = read_deployment(root).salt
    scores = judge_all(with_judge, make_visits(LIKED_BY_CANDIDATE, 60))
    deployment = read_deployment(root)
    assert (deployment.champion, deployment.candidate, deployment.mode) == (CHAMPION, CANDIDATE, "canary")
    assert (deployment.share, deployment.salt) == (trial_keeper.CANARY_SHARE, salt)
    assert scores.verdicts == {"canary": 1}


def test_nothing_is_decided_on_hold_or_in_a_dry_run(with_judge, root, set_terms, caplog):
    """A dry run says what it would do, and writes nothing."""
    events = make_visits(LIKED_BY_CANDIDATE, 100)
    with caplog.at_level("INFO"):
        judge_all(with_judge, events, dry_run=True)
    assert f"Would promote {CANDIDATE}: shown better" in caplog.text
    assert read_live_scores(root) is None
    set_terms(auto=False)
    scores = judge_all(with_judge, [])
    assert (read_deployment(root).candidate, scores.verdicts) == (CANDIDATE, {})
    assert scores.figures is not None
    assert scores.figures.e_values["promote"] > 20 > scores.figures.e_values["return"]


def test_trial_goes_on_after_a_restart(with_judge, root, set_terms):
    """Half of the events before it, half after it."""
    set_terms(min_trials=100)
    for start in (0, 50):
        assert read_deployment(root).candidate == CANDIDATE
        judge_all(with_judge, make_visits(LIKED_BY_CANDIDATE, 50, start=start))
    assert read_deployment(root).champion == CANDIDATE


def test_events_are_told_apart_by_who_served_their_users(with_judge, root, set_terms):
    """In canary the hash that assigned the users says who."""
    set_terms(auto=False)
    deployment = change_deployment(root, set_share(0.3), action="share", by="test")
    events = make_visits(LIKED_BY_CANDIDATE, 120)
    served = [assign(event.user_id, salt=deployment.salt, share=0.3) for event in events]
    scores = judge_all(with_judge, events)
    assert scores.trial is not None
    counts = {ground: evidence["tally"][0] for ground, evidence in scores.trial["evidence"].items()}
    assert counts == {"home": served.count("champion"), "away": served.count("candidate"), "organic": 0}
    assert min(counts["home"], counts["away"]) > 10


def test_events_are_attributed_to_the_version_that_answered(with_judge, root, set_terms):
    """The first of each id; none of foreign ids, of another user's, and of answers that no model made."""
    set_terms(auto=False)
    deployment = change_deployment(root, set_share(0.3), action="share", by="test")
    ids = RecommendationIds(deployment.id_key)
    made: dict[tuple[str, str], str] = {}

    def make(user, variant="champion", **origin):
        given = {"generation": deployment.generation, "variant": variant, "from_model": True} | origin
        return made.setdefault((user, variant), ids.make(user, **given))

    events = [
        *make_visits(["i01"], 3, ids=make),
        *make_visits(["i02"], 2, start=3, ids=lambda user: make(user, "candidate")),
        *make_visits(["i03"], 2, start=5, ids=lambda _: make("v0")),
        *make_visits(["i04"], 1, start=7, ids=lambda user: make(user, from_model=False)),
        *make_visits(["i05"], 1, start=8, ids=lambda _: "01234567-89ab-7cde-8123-456789abcdef"),
    ]
    again = make_event(
        user_id="v1",
        item_id="i09",
        event_type="cart",
        event_id="f",
        now_ms=1_763_719_499_000,
        recommendation_id=made["v1", "champion"],
    )
    scores = judge_all(with_judge, [*events, again])
    found = {(*series, kind): count for (series, kind), count in scores.attributed.items()}
    assert found == {("champion", CHAMPION, "view"): 3, ("candidate", CANDIDATE, "view"): 2}
