"""Answers and problems: what is read of them, what is refused, and what is said."""

import json
import pickle

import pytest

from nextitem.client.answers import FoundItems, ProblemDescription, Receipt, Recommendation
from nextitem.client.errors import ClientError, EventsRejected, Problem, read_problem, read_retry_after
from nextitem.client.model_answers import ModelDescription
from nextitem.client.reader import Mismatch, read

ANSWER = {
    "recommendation_id": "r",
    "user_id": None,
    "items": [{"item_id": "i1", "score": 2, "rank": 1, "metadata": {"title": "T", "tags": [1]}}],
    "count": 1,
    "requested": 10,
    "source": "model",
    "degraded": None,
    "model": {"name": "m", "version": "v", "variant": "champion"},
    "history": None,
    "unknown_item_ids": ["x"],
    "took_ms": 1.5,
}


def read_changed(**changes):
    """The answer with fields changed."""
    return read(Recommendation, json.dumps(ANSWER | changes).encode())


def test_an_answer_becomes_its_class():
    """Nested ones, too; whole numbers are numbers; what is not there has its default."""
    answer = read_changed()
    assert answer.item_ids == ["i1"]
    assert (answer.items[0].score, type(answer.items[0].score)) == (2.0, float)
    assert answer.items[0].metadata == {"title": "T", "tags": [1]}
    assert (answer.items[0].reasons, answer.explained, answer.history) == (None, None, None)
    assert answer.unknown_item_ids == ("x",)


def test_what_a_request_had_beside_its_history_is_told():
    """What a boost moved, and the scenario; what is not there is None."""
    items = [{"item_id": "i1", "score": 2, "rank": 1, "boost": -0.5}, {"item_id": "i2", "score": 1.0, "rank": 2}]
    answer = read_changed(items=items, scenario={"name": "home", "rules": "0123abcd"})
    assert [item.boost for item in answer.items] == [-0.5, None]
    assert answer.scenario is not None
    assert (answer.scenario.name, answer.scenario.rules) == ("home", "0123abcd")
    assert read_changed().scenario is None


def test_a_newer_service_may_say_more():
    """Fields that the client does not know, and words that it does not know."""
    assert read_changed(new={"a": 1}, degraded="something_new", source="other").degraded == "something_new"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"items": [{"item_id": "i1", "score": "secret", "rank": 1}]}, "items.score is not a number"),
        ({"items": [{"item_id": "i1", "score": 1.0}]}, "items.rank is not there"),
        ({"items": {"secret": 1}}, "items is not an array"),
        ({"count": True}, "count is not an integer"),
        ({"count": 1.0}, "count is not an integer"),
        ({"took_ms": None}, "took_ms is not a number"),
        ({"model": []}, "model is not an object"),
        ({"model": {"name": 7, "version": "v", "variant": "champion"}}, "model.name is not a string"),
        ({"unknown_item_ids": [None]}, "unknown_item_ids is not a string"),
        ({"items": [{"item_id": "i", "score": 1, "rank": 1, "metadata": []}]}, "items.metadata is not an object"),
    ],
)
def test_what_is_not_the_type_is_named(changes, said):
    """By its place and what it should be, never by what it is."""
    with pytest.raises(Mismatch) as raised:
        read_changed(**changes)
    assert str(raised.value) == said


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'"secret"', b"null", b"[" * 100_000])
def test_what_is_no_object_is_refused(content):
    """Whatever came instead of an answer."""
    with pytest.raises(Mismatch, match=r"it is not (JSON|an object)"):
        read(Receipt, content)


@pytest.mark.parametrize("kind", [Recommendation, Receipt, FoundItems, ModelDescription, ProblemDescription])
def test_every_kind_of_field_has_a_reader(kind):
    """A type that could not be read would be found with the first answer of that class only."""
    with pytest.raises(Mismatch, match="is not there"):
        read(kind, b"{}")


PROBLEM = {
    "type": "urn:nextitem:problem:validation",
    "title": "The request is not valid",
    "status": 422,
    "detail": "Correct the fields listed in errors.",
    "request_id": "r-1",
    "errors": [
        {"pointer": "/k", "code": "range", "detail": "must be at most 500"},
        {"pointer": "", "code": "missing_history", "detail": "give user_id, items or both"},
    ],
}


def test_a_problem_says_what_to_do():
    """Status, code, each field with its sentence, and the id that the service's log has."""
    problem = read_problem(422, json.dumps(PROBLEM).encode(), None)
    assert str(problem) == (
        "422 validation: Correct the fields listed in errors. /k must be at most 500 (range); give user_id, items "
        "or both (missing_history) [request r-1]"
    )
    assert (problem.type, problem.code, problem.status, problem.pointer) == (PROBLEM["type"], "validation", 422, "/k")
    assert (problem.title, problem.request_id, len(problem.errors)) == (PROBLEM["title"], "r-1", 2)


def test_another_s_answer_is_no_problem_document():
    """A proxy's page: its status counts, and its text is not repeated."""
    problem = read_problem(502, b"<html>secret</html>", "7")
    assert str(problem).startswith("502: Something between client and service answered")
    assert (problem.code, problem.request_id, problem.pointer, problem.retry_after_s) == ("", "", None, 7.0)
    assert "secret" not in str(problem)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("3", 3.0),
        (" 3 ", 3.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("9" * 400, 3600),
    ],
)
def test_retry_after_is_seconds(header, seconds):
    """Nothing else is; an hour at most."""
    assert read_retry_after(header) == seconds


def test_errors_survive_pickling():
    """As they must between processes."""
    problem = read_problem(422, json.dumps(PROBLEM).encode(), "2")
    receipt = read(
        Receipt,
        b'{"accepted":0,"duplicates":0,"late":0,"history":{},"took_ms":0,'
        b'"rejected":[{"index":0,"pointer":"","code":"c","detail":"is wrong"}]}',
    )
    for error in (problem, EventsRejected(receipt)):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert type(again) is type(error)
        assert isinstance(again, ClientError)
        assert str(again) == str(error)
    assert isinstance(problem, Problem)
    assert pickle.loads(pickle.dumps(problem)).retry_after_s == 2.0  # noqa: S301
