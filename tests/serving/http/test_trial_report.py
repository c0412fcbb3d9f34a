"""GET /models/trial: what the judge and the journal know, as far as they can be read."""

import json
import shutil
import time

import pytest

from model.contract.deployment.journal import JOURNAL
from model.contract.deployment.live_scores import LIVE, write_live_scores
from model.contract.deployment.live_sums import LiveScores, Series, Sums, TrialFigures

TINY = "20261121T101500-tiny"


@pytest.fixture
def root(bundle_path, tmp_path):
    """A copy of the bundle folder, with a second version of the same content."""
    folder = shutil.copytree(bundle_path, tmp_path / "bundles")
    shutil.copytree(folder / TINY, folder / "second")
    return folder


@pytest.fixture
def served(make_client, root):
    """A service of that folder."""
    return make_client(bundle=root)


def report(client):
    """The report, which must be 200."""
    response = client.get("/models/trial")
    assert response.status_code == 200, response.text
    return response.json()


def score(root, candidate="second"):
    """Write what a judge would have counted of a trial."""
    champion, other = Series("champion", TINY), Series("candidate", candidate)
    scores = LiveScores(
        totals={champion: Sums(200, 60, 40.0, 30.0, 2), other: Sums(200, 80, 50.0, 35.0, 0)},
        offline={champion: 0.5},
        trial={"candidate": candidate, "champion": TINY, "began_ms": 1_763_719_498_123},
        figures=TrialFigures({"promote": 3.5, "return": 0.1}, (0.05, -0.01, 0.11), 200),
        verdicts={"promote": 1},
        refused={"broken": "because of /a/path"},
        lag_s=1.5,
        at_s=time.time(),
    )
    write_live_scores(root, scores)


def test_nothing_was_scored_yet(served):
    """No judge, no trial, no changes."""
    assert report(served) == {"live": [], "judge": None, "trial": None, "journal": []}


def test_scores_evidence_and_changes(served, root):
    """Means over trials, what the evidence needs, the journal with its newest line first; no path of the machine."""
    served.post("/models/candidate", {"version": "second", "why": "worth a try"})
    served.post("/models/hold", {})
    score(root)
    told = report(served)
    assert told["live"][1] == {
        "version": "second",
        "variant": "candidate",
        "trials": 200,
        "hr_at_10": 0.4,
        "ndcg_at_10": 0.25,
        "offline_ndcg_at_10": None,
    }
    assert told["live"][0]["offline_ndcg_at_10"] == 0.5
    assert (told["judge"]["lag_s"], told["judge"]["refused"], told["judge"]["verdicts"]) == (
        1.5,
        ["broken"],
        {"promote": 1},
    )
    trial = told["trial"]
    assert (trial["candidate"], trial["champion"], trial["pairs"], trial["min_trials"]) == ("second", TINY, 200, 500)
    assert trial["difference"] == {"mean": 0.05, "low": -0.01, "high": 0.11}
    assert (trial["evidence_better"], trial["evidence_worse"], trial["proof"]) == (3.5, 0.1, 20.0)
    hold, candidate = told["journal"]
    assert (hold["action"], hold["generation"], hold["by"], hold["to"]) == ("hold", 2, "http", "auto: False")
    assert candidate["why"] == "worth a try"
    assert candidate["to"] == "candidate: second, mode: shadow"
    assert str(root) not in json.dumps(told)
    assert "/a/path" not in json.dumps(told)


def test_the_evidence_of_another_trial_is_not_told(served, root):
    """What the judge kept of a candidate that was returned says nothing of the next."""
    score(root, candidate="before")
    assert report(served)["trial"] is None
    served.post("/models/candidate", {"version": "second"})
    assert report(served)["trial"] is None


def test_what_cannot_be_read_is_left_out(served, root):
    """The judge's file and the journal may be damaged, or of anybody's hand: the rest is told."""
    (root / LIVE).write_text("{")
    (root / JOURNAL).write_text("no json\n")
    assert report(served) == {"live": [], "judge": None, "trial": None, "journal": None}
    (root / JOURNAL).write_text(json.dumps({"generation": 1, "why": ["x"] * 500, "to": 5, "at": None}) + "\n")
    [line] = report(served)["journal"]
    assert (line["to"], line["at"], len(line["why"])) == ("", "", 300)
    lines = [json.dumps({"generation": number}) for number in range(1, 81)]
    (root / JOURNAL).write_text("\n".join(lines) + "\n")
    assert [line["generation"] for line in report(served)["journal"]] == list(range(80, 30, -1))


def test_a_single_bundle_has_no_trial(make_client, root):
    """As all of /models."""
    client = make_client(bundle=root / TINY)
    assert client.get("/models/trial").status_code == 404


def test_a_malformed_deployment_is_told(served, root):
    """Who is on trial cannot be known."""
    (root / "deployment.json").write_text("{")
    assert served.get("/models/trial").status_code == 409
