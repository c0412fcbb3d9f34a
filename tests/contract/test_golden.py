"""What still counts as the golden answer, and what does not."""

import json
from dataclasses import asdict, replace

import pytest

from model.contract.golden import Golden, difference, golden_from_bytes, golden_to_bytes
from model.contract.manifest import BundleFormat

EXAMPLE = Golden(
    items=("a", "b"),
    exclude=("a",),
    candidates=(),
    k=3,
    expected_items=("c", "d", "e"),
    expected_scores=(3.0, 2.0, 2.00000001),
)


@pytest.mark.parametrize(
    ("items", "scores"),
    [
        (["c", "d", "e"], [3.0, 2.0, 2.0]),
        (["c", "e", "d"], [3.0, 2.0, 2.0]),
        (["c", "d", "e"], [3.00001, 2.0, 2.0]),
        (["c", "d", "f"], [3.0, 2.0, 2.0]),
    ],
)
def test_same_answer_within_tolerance(items, scores):
    """Float noise and ties, at the cut too, are no difference."""
    assert difference(EXAMPLE, items, scores, tolerance=1e-4) is None


@pytest.mark.parametrize(
    ("items", "scores", "words"),
    [
        (["d", "c", "e"], [3.0, 2.0, 2.0], "out of place"),
        (["c", "d"], [3.0, 2.0], "2 items instead of 3"),
        (["c", "d", "e"], [3.0, 2.0, 1.9], "differ by"),
        (["c", "d", "e"], [float("nan"), 2.0, 2.0], "differ by"),
        (["x", "d", "e"], [3.0, 2.0, 2.0], "out of place"),
        (["c", "d", "d"], [3.0, 2.0, 2.0], "in two places"),
    ],
)
def test_another_answer_is_described(items, scores, words):
    """Another order, length, score, item or a NaN is a difference that the text names."""
    assert words in (difference(EXAMPLE, items, scores, tolerance=1e-4) or "no difference")


def test_a_list_that_ends_early_may_not_end_otherwise():
    """Where fewer items are left than were asked for, none can take the last one's place."""
    example = replace(EXAMPLE, k=4)
    assert difference(example, ["c", "e", "d"], [3.0, 2.0, 2.0], tolerance=1e-4) is None
    assert difference(example, ["c", "d", "f"], [3.0, 2.0, 2.0], tolerance=1e-4) == "item 'f' is out of place"


def test_examples_round_trip():
    """golden.json reads back as it was written."""
    assert golden_from_bytes(golden_to_bytes([EXAMPLE])) == (EXAMPLE,)


@pytest.mark.parametrize("content", [b"", b"{}x", b"[1]", b'[{"items": []}]', b"[]", b"5", b"[" * 100_000, b"\xff"])
def test_damaged_examples_are_refused(content):
    """Anything else is malformed."""
    with pytest.raises(BundleFormat, match="golden"):
        golden_from_bytes(content)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("expected_scores", [1.0], "expected score for each"),
        ("expected_scores", [1.0, 2.0, "3"], "'expected_scores' must be"),
        ("expected_scores", [1.0, 2.0, float("nan")], "'expected_scores' must be"),
        ("expected_scores", [1.0, 2.0, 10**400], "'expected_scores' must be"),
        ("expected_scores", [1.0, 2.0, True], "'expected_scores' must be"),
        ("expected_items", ["c", "d", 5], "'expected_items' must be"),
        ("items", [["a"]], "'items' must be"),
        ("items", "ab", "'items' must be"),
        ("exclude", None, "'exclude' must be"),
        ("candidates", [{}], "'candidates' must be"),
        ("k", float("inf"), "'k' must be"),
        ("k", True, "'k' must be"),
        ("k", 0, "'k' must be"),
        ("k", 3.0, "'k' must be"),
        ("more", 1, "is not an object of"),
    ],
)
def test_a_wrong_field_is_named(field, value, words):
    """A field of a wrong type, range or length is malformed, and the example and the field are named."""
    content = json.dumps([asdict(EXAMPLE), {**asdict(EXAMPLE), field: value}]).encode()
    with pytest.raises(BundleFormat, match=rf"golden\.json: example 1.* {words}"):
        golden_from_bytes(content)
