"""What a filter allows, by the columns of all items and by a plain reading of the rules alike."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.contract.attributes import Attributes, gather_attributes
from model.contract.vocabulary import Vocabulary
from service.errors import Invalid
from service.filters.parser import BOUNDS, MAX_DEPTH, parse_filter
from tests.serving.filters.plain import matches

TEXTS = ["Drama", "War", "é", "true", "1999"]
NUMBERS = [-1, 0, 2, 2.5, 1999, 2**53, 2**53 + 1, 1e308]
FIELDS = {"text": False, "texts": False, "number": True, "numbers": True, "flag": False, "rare": False}
"""The fields of generated items, and whether they hold numbers."""


texts, numbers = st.sampled_from(TEXTS), st.sampled_from(NUMBERS)
items = st.fixed_dictionaries(
    {},
    optional={
        "text": texts | st.just(""),
        "texts": st.lists(texts, max_size=3),
        "number": numbers | st.none(),
        "numbers": st.lists(numbers, max_size=3) | numbers,
        "flag": st.booleans(),
        "rare": st.just("Drama"),
    },
)


@st.composite
def leaves(draw, fields=tuple(FIELDS)):
    """A condition that fits its field."""
    field = draw(st.sampled_from(fields))
    numeric = FIELDS[field]
    kind = draw(st.sampled_from(["in", "exists", "range"] if numeric else ["in", "exists"]))
    if kind == "exists":
        return {"field": field, "exists": draw(st.booleans())}
    if kind == "in":
        known = numbers if numeric else texts | st.booleans()
        return {"field": field, "in": draw(st.lists(known | st.just(7 if numeric else "?"), min_size=1, max_size=4))}
    names = draw(st.sets(st.sampled_from(BOUNDS), min_size=1))
    return {"field": field} | {name: draw(numbers | st.floats(-5, 2005)) for name in sorted(names)}


def trees(depth=MAX_DEPTH):
    """Filters of up to so many nodes within each other."""
    if depth == 0:
        return leaves()
    inner = trees(depth - 1)
    parts = st.lists(inner, min_size=1, max_size=2)
    return (
        leaves() | parts.map(lambda p: {"all": p}) | parts.map(lambda p: {"any": p}) | inner.map(lambda p: {"not": p})
    )


@settings(max_examples=400, deadline=None)
@given(catalogue=st.lists(items, min_size=1, max_size=12), document=trees())
def test_columns_and_rules_agree(catalogue, document):
    """For every item: the mask, and the rules."""
    wanted = parse_filter(document)
    vocabulary = Vocabulary([f"i{number:02d}" for number in range(len(catalogue))])
    complete = dict(zip(vocabulary.item_ids, catalogue, strict=True))
    attributes = gather_attributes(vocabulary, complete)
    attributes = Attributes.from_bytes(attributes.to_bytes(), len(vocabulary))
    expected = [matches(document, metadata) for metadata in catalogue]
    if any(leaf.field not in attributes.columns for leaf in wanted.root.leaves()):  # no item has it
        with pytest.raises(Invalid):
            wanted.check(attributes)
        return
    wanted.check(attributes)
    assert wanted.estimate_work(attributes) > 0
    allowed = wanted.allow(attributes)
    assert allowed.mask[1:-1].tolist() == expected
    assert allowed.count == sum(expected)


@pytest.mark.parametrize(
    "metadata",
    [
        {"text": None},
        {"text": {"in": "Drama"}},
        {"text": [["Drama"], {"Drama": 1}, None]},
        {"text": 10**400},
        {"text": math.nan},
        {"text": "drama"},
        {},
    ],
    ids=repr,
)
def test_metadata_of_any_form_is_read(metadata):
    """What holds no such value does not match, whatever it is."""
    attributes = gather_attributes(Vocabulary(["a", "b"]), {"a": metadata, "b": {"text": "Comedy"}})
    for document, both in (
        ({"field": "text", "in": ["Drama", "Comedy"]}, [False, True]),
        ({"not": {"field": "text", "in": ["Drama"]}}, [True, True]),
    ):
        assert parse_filter(document).allow(attributes).mask[1:-1].tolist() == both


@pytest.fixture
def attributes():
    """Two columns, of strings and of numbers."""
    return gather_attributes(Vocabulary(["a", "b"]), {"a": {"genres": ["War"], "year": 1999}})


def find_errors(document, attributes):
    """Pointers, codes and details of what is wrong with a filter."""
    with pytest.raises(Invalid) as invalid:
        parse_filter(document).check(attributes)
    return [(error.pointer, error.code, error.detail) for error in invalid.value.field_errors]


def test_unknown_fields_are_told_the_known_ones(attributes):
    """Each by its place; without a word of what was sent."""
    document = {
        "any": [{"field": "c4n4ry", "in": ["x"]}, {"field": "year", "gt": 1}, {"field": "Year", "exists": True}]
    }
    listed = "must be a field to filter by, which are: genres, year"
    assert find_errors(document, attributes) == [
        ("/filter/any/0/field", "unknown_field", listed),
        ("/filter/any/2/field", "unknown_field", listed),
    ]
    [(_, _, detail)] = find_errors({"field": "year", "exists": True}, Attributes(2, {}))
    assert "publish it with --items" in detail


def test_conditions_must_fit_their_field(attributes):
    """Strings for strings, numbers for numbers, bounds for numbers alone; whether there is a value, of all."""
    document = {
        "all": [
            {"field": "genres", "in": [1999]},
            {"not": {"field": "year", "in": ["1999"]}},
            {"field": "genres", "gt": 5},
            {"field": "genres", "exists": True},
        ]
    }
    assert [error[:2] for error in find_errors(document, attributes)] == [
        ("/filter/all/0/in", "wrong_type"),
        ("/filter/all/1/not/in", "wrong_type"),
        ("/filter/all/2", "wrong_type"),
    ]


def test_many_fields_are_not_all_listed():
    """An error stays small, however many columns there are and however long their names."""
    known: dict[str, Any] = {f"{'n' * 90}{number:02d}": 1 for number in range(64)}
    wide = gather_attributes(Vocabulary(["a"]), {"a": known})
    [(_, _, detail)] = find_errors({"field": "x", "exists": True}, wide)
    assert detail.count("n" * 90) == 2
    assert detail.endswith(" and 62 more")
    [(_, _, detail)] = find_errors(
        {"field": "x", "exists": True}, gather_attributes(Vocabulary(["a"]), {"a": {"y": 1}})
    )
    assert detail.endswith("which are: y")


def test_what_matches_nothing_allows_nothing(attributes):
    """An unknown value is no error; PAD and [mask] are never allowed, not even by a filter that allows every item."""
    none = parse_filter({"field": "genres", "in": ["nothing", ""]}).allow(attributes)
    assert (none.count, none.mask.tolist()) == (0, [False] * 4)
    everything = parse_filter({"not": {"field": "genres", "in": ["nothing"]}}).allow(attributes)
    assert (everything.count, everything.mask.tolist()) == (2, [False, True, True, False])


def test_large_numbers_are_compared_as_float64():
    """2**53 + 1 is 2**53."""
    vocabulary = Vocabulary(["a"])
    metadata = {"number": 2**53 + 1}
    wanted = parse_filter({"field": "number", "in": [2**53]})
    np.testing.assert_array_equal(
        wanted.allow(gather_attributes(vocabulary, {"a": metadata})).mask, [False, True, False]
    )
