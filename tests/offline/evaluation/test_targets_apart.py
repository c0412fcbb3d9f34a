"""Planted repeats: a log in which each treatment of seen items and repeated targets gives a number known by hand."""

import json
import re

import numpy as np
import pytest

from training.cli import main
from training.evaluation.results import (
    LEAST_USERS,
    find_weakness,
    format_results,
    format_verdict,
    is_ahead,
    is_beyond_chance,
)

SECOND, THIRD, FOURTH = (float(1 / np.log2(place + 1)) for place in (2, 3, 4))
SEEN_KEPT_NEW = (THIRD + FOURTH) / 2
SEEN_KEPT_REPEATED = (1 + SECOND) / 2


@pytest.fixture
def log(tmp_path):
    """Ten users met i01, i02 and i03. Six of them then meet i04, which is new, and four i01 again.

    Popularity counts i01 and i02 ten times each: without seen items i04 is all that is left.
    """
    path = tmp_path / "repeats.csv"
    rows = [
        f"u{user},{item},{1_700_000_000 + step}"
        for user in range(10)
        for step, item in enumerate(["i01", "i02", "i03", "i04" if user < 6 else "i01"])
    ]
    path.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def evaluate(log, capsys):
    """A function: options of `evaluate pop` -> what it prints as JSON."""

    def ask(*options):
        assert main(["evaluate", "pop", "--data", log, "--json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.mark.parametrize(
    ("options", "new", "repeated"),
    [
        ([], 1.0, 0.0),
        (["--repeated-targets", "kept"], 1.0, 1.0),
        (["--repeated-targets", "dropped"], 1.0, None),
        (["--seen-items", "kept"], SEEN_KEPT_NEW, SEEN_KEPT_REPEATED),
        (["--seen-items", "kept", "--repeated-targets", "dropped"], SEEN_KEPT_NEW, None),
        (["--protocol", "P6s"], SEEN_KEPT_NEW, SEEN_KEPT_REPEATED),
        (["--protocol", "P6s", "--seen-items", "removed"], 1.0, 1.0),
        (["--protocol", "P6s", "--seen-items", "removed", "--repeated-targets", "missed"], 1.0, 0.0),
    ],
    ids=str,
)
def test_every_treatment_gives_its_own_number(evaluate, options, new, repeated):
    """NDCG@10 of all targets, of the new ones and of the repeated ones, by hand; what was done is named."""
    found = evaluate(*options)
    users, of_all = (6, new) if repeated is None else (10, 0.6 * new + 0.4 * repeated)
    apart = found["targets"]
    assert found["users"] == users
    assert found["metrics"]["NDCG@10"]["value"] == pytest.approx(of_all)
    assert apart["new"]["metrics"]["NDCG@10"]["value"] == pytest.approx(new)
    assert apart["share"] == pytest.approx(0.4)
    assert (apart["new"]["users"], apart["repeated"]["users"]) == (6, users - 6)
    if repeated is None:
        assert apart["repeated"]["metrics"] is None
    else:
        assert apart["repeated"]["metrics"]["NDCG@10"]["value"] == pytest.approx(repeated)
    asked = dict(zip(options[::2], options[1::2], strict=True))
    kept = asked.get("--protocol") == "P6s"
    assert found["seen_items"] == asked.get("--seen-items", "kept" if kept else "removed")
    by_default = "kept" if kept or found["seen_items"] == "kept" else "missed"
    assert found["repeated_targets"] == asked.get("--repeated-targets", by_default)
    assert (found["evaluation"], found["held_out_users"]) == (2, 10)


def test_the_table_tells_new_and_repeated_targets_apart(log, capsys):
    """A line each, the share, and what is otherwise than the protocol has it; none of it where nothing repeats."""
    assert main(["evaluate", "pop", "--data", log]) == 0
    shown = capsys.readouterr().out
    assert "40.0% of the targets are items that their user had met before: missed by every model" in shown
    assert re.search(r"\nnew targets, 6 users\npop +1\.0000 .*\nrepeated targets, 4 users\npop +0\.0000 ", shown)
    assert ", but " not in shown
    assert main(["evaluate", "pop", "--data", log, "--repeated-targets", "kept"]) == 0
    assert "seen items removed, but repeated targets kept; 10 users" in capsys.readouterr().out


def test_without_repeats_the_table_is_as_short_as_ever(cycle_csv, capsys):
    """Nobody on the ring meets an item again: one line, and all targets are new."""
    assert main(["evaluate", "pop", "--data", str(cycle_csv)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["evaluate", "pop", "--data", str(cycle_csv), "--json"]) == 0
    targets = json.loads(capsys.readouterr().out)["targets"]
    assert (targets["share"], targets["new"]["users"], targets["repeated"]) == (0, 24, {"users": 0, "metrics": None})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--protocol", "P1", "--seen-items", "kept"], "applies to protocols that rank all items, P1 draws some"),
        (["--seen-items", "kept", "--repeated-targets", "missed"], "is missed only where seen items are removed"),
        (["--protocol", "P7", "--repeated-targets", "missed"], "is missed only where seen items are removed"),
    ],
    ids=str,
)  # fmt: skip
def test_treatments_that_contradict_each_other_are_refused(log, capsys, options, message):
    """One sentence, and status 2."""
    assert main(["evaluate", "pop", "--data", log, *options]) == 2
    assert message in capsys.readouterr().err


def test_results_of_before_are_shown_as_they_were(evaluate):
    """A document without the newer keys makes the same table, without what it does not know."""
    found = evaluate()
    older = {key: found[key] for key in ("protocol", "users", "metrics")}
    assert format_results(older, {"pop": older["metrics"]}).splitlines()[0].endswith("; 10 users, 95 % intervals")
    assert len(format_results(older, {"pop": older["metrics"]}).splitlines()) == 3


LEAD = {"value": 0.3, "low": 0.3, "high": 0.3}


@pytest.mark.parametrize(
    ("lead", "users", "says"),
    [
        (LEAD, 1, "No winner: 1 of the 6 users"),
        (LEAD, LEAST_USERS - 1, "No winner: 5 of the 6 users"),
        (LEAD, LEAST_USERS, "a wins: its NDCG@10 is 0.3000"),
        (dict.fromkeys(LEAD, 0.0), 1, "No winner: a and b have the same NDCG@10."),
        (dict.fromkeys(LEAD, 0.0), 1000, "No winner: a and b have the same NDCG@10."),
        ({**LEAD, "low": 0.0}, 1000, "which chance can explain"),
    ],
)
def test_no_win_is_told_of_few_users_or_of_equals(lead, users, says):
    """One user's interval has no width, and yet he proves nothing: six are the fewest who can."""
    comparison = {"winner": "a", "second": "b", "metric": "NDCG@10", "lead": lead}
    assert says in format_verdict(comparison, users)
    assert is_ahead(lead, users) == ("wins" in says)
    behind = {"value": -lead["value"], "low": -lead["high"], "high": -lead["low"]}
    assert is_beyond_chance(behind, users) == ("wins" in says)


def test_few_users_cannot_say_that_a_model_beats_popularity():
    """The lead of one user over popularity is no reason to publish; six with the same one are."""
    results = {"users": 1, "over_popularity": LEAD}
    assert find_weakness(results) == "1 users were asked, of whom nobody can tell whether the model beats popularity"
    assert find_weakness({**results, "users": 6}) is None
    assert find_weakness({"users": 1}) is None


def test_one_user_is_no_win(tmp_path, capsys):
    """By the command: one user, whom rules know and neither Markov nor popularity does, makes no winner."""
    log = tmp_path / "one.csv"
    walks = {"u": "abcd", "v": "bd", "w": "ce", "x": "cd", "y": "e", "z": "e"}
    walk = [(user, item) for user, items in walks.items() for item in items]
    log.write_text("user,item,timestamp\n" + "".join(f"{user},{item},{at}\n" for at, (user, item) in enumerate(walk)))
    assert main(["fit", "pop", "--data", str(log), "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "No winner: 1 of the 6 users that it takes at least were asked." in out
    assert " wins" not in out
