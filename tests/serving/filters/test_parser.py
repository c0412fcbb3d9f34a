"""A filter is read, or refused at its first fault: by its place, a code and a sentence, within bounds."""

import contextlib
import gc
import time

import orjson
import pytest

from model.contract.columns import Bounds
from service.filters.nodes import All, AnyOf, Exists, In, Not, Range
from service.filters.parser import MAX_BYTES, MAX_DEPTH, MAX_IN, MAX_LEAVES, FilterRefused, parse_filter

CANARY = "c4n4ry"
LEAF = {"field": "genres", "in": ["Drama"]}


def nest(document, name, times):
    """A document within so many nodes of a name."""
    for _ in range(times):
        document = {name: document if name == "not" else [document]}
    return document


def test_the_example_of_the_documentation():
    """All three kinds of node, and conditions of two kinds."""
    document = {
        "all": [
            {"field": "genres", "in": ["Drama"]},
            {"field": "price", "gte": 10, "lt": 50},
            {"not": {"field": "brand", "in": ["x"]}},
            {"any": [{"field": "brand", "exists": False}, {"field": "new", "in": [True, False, "maybe"]}]},
        ]
    }
    assert parse_filter(document).root == All(
        (
            In(field="genres", pointer="", values=frozenset(["Drama"])),
            Range(field="price", pointer="", bounds=Bounds(gte=10.0, lt=50.0)),
            Not(In(field="brand", pointer="", values=frozenset(["x"]))),
            AnyOf(
                (
                    Exists(field="brand", pointer="", wanted=False),
                    In(field="new", pointer="", values=frozenset(["true", "false", "maybe"])),
                )
            ),
        )
    )


def test_equal_filters_are_one_key():
    """The order and number of values and the spelling of numbers make no difference; the kind of node does."""
    one, other = ({"field": "year", "in": values} for values in ([1999, 2000.0, 1999], [2000, 1999.0]))
    assert parse_filter(one) == parse_filter(other)
    assert hash(parse_filter(one)) == hash(parse_filter(other))
    assert parse_filter({"all": [LEAF]}) != parse_filter({"any": [LEAF]})
    assert parse_filter({"field": "a", "in": ["1"]}) != parse_filter({"field": "a", "in": [1]})
    assert parse_filter({"field": "a", "gt": 1}) != parse_filter({"field": "a", "gte": 1})


def test_leaves_know_their_place():
    """So that an error of the model in use can name it."""
    document = {"all": [LEAF, {"not": {"any": [LEAF, {"field": "year", "gt": 1}]}}]}
    leaves = parse_filter(document).root.leaves()
    assert [leaf.pointer for leaf in leaves] == ["/all/0", "/all/1/not/any/0", "/all/1/not/any/1"]


REFUSED: list[tuple[object, str, str]] = [
    *((value, "", "wrong_type") for value in ([], CANARY, 5, True, [LEAF])),
    ({}, "/field", "missing"),
    ({CANARY: 1}, "", "extra_forbidden"),
    (LEAF | {CANARY: 1}, "", "extra_forbidden"),
    ({"in": ["a"]}, "/field", "missing"),
    ({"field": "a"}, "", "missing"),
    ({"field": 5, "in": ["a"]}, "/field", "wrong_type"),
    ({"field": None, "exists": True}, "/field", "wrong_type"),
    ({"field": "", "exists": True}, "/field", "too_short"),
    ({"field": CANARY * 17, "exists": True}, "/field", "too_long"),
    ({"all": [LEAF], "any": [LEAF]}, "", "one_condition"),
    ({"all": [LEAF], "field": "a"}, "", "one_condition"),
    ({"all": [LEAF], CANARY: 1}, "", "one_condition"),
    ({"field": "a", "in": ["a"], "gt": 1}, "", "one_condition"),
    ({"field": "a", "in": ["a"], "exists": True}, "", "one_condition"),
    ({"field": "a", "exists": True, "lt": 5}, "", "one_condition"),
    ({"all": []}, "/all", "too_short"),
    ({"any": []}, "/any", "too_short"),
    ({"all": {}}, "/all", "wrong_type"),
    ({"any": CANARY}, "/any", "wrong_type"),
    ({"not": []}, "/not", "wrong_type"),
    ({"not": None}, "/not", "wrong_type"),
    ({"all": [LEAF, CANARY]}, "/all/1", "wrong_type"),
    ({"field": "a", "in": CANARY}, "/in", "wrong_type"),
    ({"field": "a", "in": []}, "/in", "too_short"),
    ({"field": "a", "in": ["x", None]}, "/in/1", "wrong_type"),
    ({"field": "a", "in": ["x", [CANARY]]}, "/in/1", "wrong_type"),
    ({"field": "a", "in": [{CANARY: 1}]}, "/in/0", "wrong_type"),
    ({"field": "a", "in": [CANARY, 5]}, "/in", "wrong_type"),
    ({"field": "a", "in": [True, 5]}, "/in", "wrong_type"),
    ({"field": "a", "in": [CANARY] * (MAX_IN + 1)}, "/in", "too_many"),
    ({"field": "a", "gt": "5"}, "/gt", "wrong_type"),
    ({"field": "a", "gte": None}, "/gte", "wrong_type"),
    ({"field": "a", "lt": True}, "/lt", "wrong_type"),
    ({"field": "a", "gt": 1, "lte": [CANARY]}, "/lte", "wrong_type"),
    ({"field": "a", "exists": 1}, "/exists", "wrong_type"),
    ({"field": "a", "exists": None}, "/exists", "wrong_type"),
    (nest(LEAF, "not", MAX_DEPTH + 1), "/not/not/not", "too_deep"),
    (nest(LEAF, "all", MAX_DEPTH + 1), "/all/0/all/0/all/0", "too_deep"),
    ({"all": [LEAF] * (MAX_LEAVES + 1)}, "/all", "too_many"),
    ({"all": [{"any": [LEAF] * 9}, {"any": [LEAF] * 8}]}, "", "too_many"),
    ({"field": "a", "in": [CANARY * 700]}, "", "too_long"),
]


@pytest.mark.parametrize(("document", "pointer", "code"), REFUSED)
def test_what_is_no_filter_is_refused(document, pointer, code):
    """By the place of its first fault, and without a word of what was sent."""
    with pytest.raises(FilterRefused) as refused:
        parse_filter(document)
    assert ("".join(f"/{part}" for part in refused.value.location), refused.value.code) == (pointer, code)
    assert CANARY not in refused.value.detail


def test_limits_are_the_last_that_pass():
    """Sixteen conditions, three nodes within each other, a hundred values, 4,096 bytes."""
    assert len(list(parse_filter({"all": [LEAF] * MAX_LEAVES}).root.leaves())) == MAX_LEAVES
    for name in ("all", "any", "not"):
        parse_filter(nest(LEAF, name, MAX_DEPTH))
    parse_filter({"field": "a" * 100, "in": list(range(MAX_IN))})
    document = {"field": "a", "in": [""]}
    document["in"] = ["x" * (MAX_BYTES - len(orjson.dumps(document)))]
    parse_filter(document)
    document["in"] = [f"{document['in'][0]}x"]
    with pytest.raises(FilterRefused, match="at most 4,096 bytes"):
        parse_filter(document)


def list_hostile():
    """Filters of about 4 KiB that are refused, and the largest that pass."""
    leaf = {"field": "a", "gt": 1}
    yield {"all": [{"all": [{"all": [leaf] * 16}] * 16}] * 16}
    yield nest(leaf, "not", 500)
    yield {"all": [{"field": "a", "in": list(range(100))}] * 8 + [{"field": "a", "in": [CANARY, 5]}]}
    yield {"all": [{"field": "a", "in": [f"{number:x}" for number in range(100)]}] * 7}
    yield {"field": "a", "in": ["é" * 40] * 100}
    yield {f"{CANARY}{number}": number for number in range(300)}
    yield {"all": [{"field": "a", "in": ["x"]}] * 15 + [{"field": "a", "in": [[]] * 100}]}


def test_hostile_filters_cost_little():
    """Whatever 4 KiB hold, reading them takes well under a millisecond of CPU; the bound leaves room."""
    gc.disable()
    try:
        for document in list_hostile():
            least_s = 1.0
            for _ in range(5):
                began_s = time.process_time()
                with contextlib.suppress(FilterRefused):
                    parse_filter(document)
                least_s = min(least_s, time.process_time() - began_s)
            assert least_s < 0.05
    finally:
        gc.enable()
