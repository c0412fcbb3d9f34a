"""The checker that all fault runs rely on: silent where all is well, and it finds each violation planted."""

from dataclasses import replace

import pytest

from benchmarks.reliability.chaos.checker import Entry, Outcome, Sent, Stored, Violation, check

USERS = ("u1", "u2")
EVENTS = 6


class Run:
    """Two users, six events each, sent one after the other and all stored; the last of each is unknown."""

    def __init__(self):
        self.sent = {}
        self.log: dict[str, list[Entry]] = {user: [] for user in USERS}
        for number in range(EVENTS):
            for user in USERS:
                name = f"{user}-{number}"
                outcome: Outcome = "unknown" if number == EVENTS - 1 else "ok"
                done = float("inf") if outcome == "unknown" else number + 0.5
                self.sent[name] = Sent(user, name, f"i{number}", 1000 + number, number, done, outcome, 1)
                self.log[user].append(Entry(user, name, f"i{number}", 1000 + number))
        self.histories = {user: log[-4:] for user, log in self.log.items()}
        self.marks = {user: {entry.event_id for entry in log} for user, log in self.log.items()}

    def find(self):
        """What the checker says."""
        marks = {user: frozenset(names) for user, names in self.marks.items()}
        stored = Stored(self.log, self.histories, marks)
        return check(self.sent.values(), stored, history_length=4, marks_kept=3)

    def store_again(self, user, log):
        """Replace a user's log, and what follows from it."""
        self.log[user] = log
        self.histories[user] = sorted(log, key=lambda entry: entry.timestamp_ms)[-4:]
        self.marks[user] = {entry.event_id for entry in log}


def _lose(run):
    run.store_again("u1", run.log["u1"][1:])


def _invent(run):
    run.store_again("u1", [*run.log["u1"], Entry("u1", "never-sent", "i", 2000)])


def _store_refused(run):
    run.sent["u1-1"].outcome = "refused"


def _repeat(run):
    run.store_again("u1", [*run.log["u1"][:1], *run.log["u1"]])


def _swap(run):
    log = run.log["u1"]
    run.store_again("u1", [log[1], log[0], *log[2:]])


def _alter(run):
    run.store_again("u1", [replace(run.log["u1"][0], item_id="other"), *run.log["u1"][1:]])


def _log_for_another(run):
    run.log["u2"] = [run.log["u1"][0], *run.log["u2"]]


def _remember_for_another(run):
    run.histories["u2"] = [*run.histories["u2"][:-1], run.log["u1"][-1]]


def _forget_history(run):
    run.histories["u1"] = run.histories["u1"][:-1]


def _turn_history_round(run):
    run.histories["u1"] = run.histories["u1"][::-1]


def _overgrow_history(run):
    run.histories["u1"] = run.log["u1"]


def _mark_only(run):
    run.sent["half"] = Sent("u1", "half", "i", 2000, 9.0)
    run.marks["u1"].add("half")


def _unmark(run):
    run.marks["u1"].remove("u1-5")


PLANTED = {
    _lose: Violation("lost", "u1", "u1-0"),
    _invent: Violation("phantom", "u1", "never-sent"),
    _store_refused: Violation("refused yet stored", "u1", "u1-1"),
    _repeat: Violation("duplicate", "u1", "u1-0"),
    _swap: Violation("misordered", "u1", "u1-0"),
    _alter: Violation("altered", "u1", "u1-0"),
    _log_for_another: Violation("cross-user", "u2", "u1-0"),
    _remember_for_another: Violation("cross-user", "u2", "u1-5"),
    _forget_history: Violation("history is not the log's tail", "u1"),
    _turn_history_round: Violation("history is not the log's tail", "u1"),
    _overgrow_history: Violation("history is not the log's tail", "u1"),
    _mark_only: Violation("mark without entry", "u1", "half"),
    _unmark: Violation("entry without mark", "u1", "u1-5"),
}


def test_nothing_is_found_where_all_is_well():
    """No false alarm; an unknown event may be there or not, old marks may be gone, and nothing at all is well, too."""
    run = Run()
    assert run.find() == []
    run.marks["u1"] -= {"u1-0", "u1-1", "u1-2"}
    run.store_again("u2", run.log["u2"][:-1])
    assert run.find() == []
    assert check([], Stored({}), history_length=4, marks_kept=3) == []


def test_concurrent_events_may_stand_in_any_order():
    """Only what was acknowledged before the other was sent has an order."""
    run = Run()
    run.sent["u1-0"].completed_s = 1.2  # the second was sent at 1
    _swap(run)
    assert run.find() == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_each_planted_violation_is_found(plant):
    """Whatever is broken is named, with its user and event."""
    run = Run()
    plant(run)
    assert PLANTED[plant] in run.find()
