"""What items can be filtered by: gathered from their metadata, written, read back, and refused when anything is off."""

import json
from typing import Any

import numpy as np
import pytest

from model.contract import attributes, bundle
from model.contract.attributes import MAX_CHARACTERS, MAX_COLUMNS, MAX_NAME, Attributes, gather_attributes
from model.contract.bundle import describe_file, read_bundle
from model.contract.columns import Bounds, Numbers, Postings, read_values
from model.contract.manifest import BundleFormat
from model.contract.npy import decode_arrays, encode_arrays
from model.contract.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "b", "c", "d"])
KNOWN: dict[str, dict[str, Any]] = {
    "a": {"title": "A", "year": 1999, "genres": ["War", "Drama"], "sizes": [38, 39.5], "new": True},
    "b": {"title": "Bé", "year": 2001.5, "genres": ["Drama"], "sizes": 39.5},
    "d": {"title": "A", "genres": [], "sizes": [], "new": False, "deep": {"a": 1}},
    "unknown": {"other": "x"},
}


def mark(column, method, *given):
    """The items of VOCABULARY that a method of a column marks."""
    mask = np.zeros(6, dtype=np.bool_)
    getattr(column, method)(mask, *given)
    return "".join(item_id for item_id, marked in zip(VOCABULARY.item_ids, mask[1:-1], strict=True) if marked)


@pytest.fixture
def gathered():
    """The columns of KNOWN."""
    return gather_attributes(VOCABULARY, KNOWN)


def test_columns_are_of_numbers_or_of_postings(gathered):
    """Single numbers stand one by one; strings, lists and truth values by value; what has no value is no column."""
    assert list(gathered.columns) == ["genres", "new", "sizes", "title", "year"]
    assert gathered.left_out == {}
    kinds = {name: type(column) for name, column in gathered.columns.items()}
    assert kinds == {"genres": Postings, "new": Postings, "sizes": Postings, "title": Postings, "year": Numbers}
    assert [name for name, column in gathered.columns.items() if column.numeric] == ["sizes", "year"]
    assert gathered.columns["genres"].values == ("Drama", "War")
    assert gathered.columns["new"].values == ("false", "true")
    np.testing.assert_array_equal(gathered.columns["year"].values, [1999, 2001.5, np.nan, np.nan])


def test_columns_find_their_items(gathered):
    """By a value, by several, by bounds, and by whether there is any."""
    columns = gathered.columns
    assert mark(columns["genres"], "mark_values", ["War"]) == "a"
    assert mark(columns["genres"], "mark_values", {"War", "Drama", "nothing"}) == "ab"
    assert mark(columns["year"], "mark_values", [1999.0, 7.0]) == "a"
    assert mark(columns["sizes"], "mark_values", [39.5]) == "ab"
    assert mark(columns["year"], "mark_range", Bounds(gt=1999)) == "b"
    assert mark(columns["year"], "mark_range", Bounds(gte=1999, lt=2001.5)) == "a"
    assert mark(columns["sizes"], "mark_range", Bounds(lt=39)) == "a"
    assert mark(columns["sizes"], "mark_range", Bounds(gt=38, lt=39)) == ""
    assert mark(columns["sizes"], "mark_range", Bounds(gt=40, lt=30)) == ""
    assert [mark(columns[name], "mark_present") for name in columns] == ["ab", "ad", "ab", "abd", "ab"]


def test_what_is_written_is_read(gathered):
    """Columns come back in their order, and so do reasons; without any column, too."""
    read = Attributes.from_bytes(gathered.to_bytes(), 4)
    assert list(read.columns) == list(gathered.columns)
    for name, column in read.columns.items():
        written = gathered.columns[name]
        np.testing.assert_array_equal(column.values, written.values)
        if isinstance(column, Postings):
            np.testing.assert_array_equal(column.starts, written.starts)
            np.testing.assert_array_equal(column.items, written.items)
    mixed = gather_attributes(VOCABULARY, {"a": {"odd": 1}, "b": {"odd": "1"}})
    assert Attributes.from_bytes(mixed.to_bytes(), 4) == Attributes(4, {}, {"odd": "it mixes numbers and strings"})


@pytest.mark.parametrize(
    ("cell", "values"),
    [
        (None, ()),
        ("", ()),
        ([], ()),
        ({}, ()),
        ({"a": 1}, ()),
        (float("nan"), ()),
        (float("inf"), ()),
        (10**400, ()),
        ("x", ("x",)),
        (0, (0.0,)),
        (2**53 + 1, (float(2**53),)),
        (True, ("true",)),
        (False, ("false",)),
        (["a", "", None, ["b"], {"c": 1}, "a", True], ("a", "true")),
        ([1, 2.5, 1.0], (1.0, 2.5)),
    ],
    ids=repr,
)
def test_values_of_a_cell(cell, values):
    """Strings, numbers as float64 and truth values as strings, each once; nothing else has a value."""
    assert read_values(cell) == values
    assert [type(value) for value in read_values(cell)] == [type(value) for value in values]


def test_columns_have_bounds(monkeypatch):
    """What is too large is left out with a reason, and the last that fits is not."""
    monkeypatch.setattr(attributes, "MAX_VALUES", 3)
    item_ids = [f"i{number}" for number in range(4)]
    vocabulary = Vocabulary(item_ids)
    known: dict[str, dict[str, object]] = {
        item_id: {
            "many": item_id,
            "few": item_id[:1] if item_id == "i3" else item_id,
            "numbers": number,
            "long": "x" * (MAX_CHARACTERS + 1),
            "short": "x" * MAX_CHARACTERS,
            "n" * MAX_NAME: 1,
            "n" * (MAX_NAME + 1): 1,
            "": 1,
        }
        for number, item_id in enumerate(item_ids)
    }
    known["i2"]["few"] = "i1"
    gathered = gather_attributes(vocabulary, known)
    assert set(gathered.columns) == {"few", "numbers", "short", "n" * MAX_NAME}
    assert gathered.left_out == {
        "": "it has no name",
        "many": "it has more than 3 distinct values",
        "long": "a value of it has more than 256 characters",
        "n" * MAX_NAME: "its name has more than 100 characters",
    }
    wide = gather_attributes(vocabulary, {"i0": {f"c{number:03d}": 1 for number in range(3 * MAX_COLUMNS)}})
    assert list(wide.columns) == [f"c{number:03d}" for number in range(MAX_COLUMNS)]
    assert set(wide.left_out.values()) == {"there are 64 others"}
    assert len(wide.left_out) == MAX_COLUMNS
    Attributes.from_bytes(wide.to_bytes(), 4)


def rewritten(gathered, **changes):
    """The bytes of attributes, with the header or arrays replaced."""
    header, numbers, lengths, items = decode_arrays(gathered.to_bytes(), 4)
    parts = {"header": json.loads(header.tobytes()), "numbers": numbers, "lengths": lengths, "items": items}
    for name, change in changes.items():
        parts[name] = change(parts[name])
    encoded = parts["header"] if isinstance(parts["header"], bytes) else json.dumps(parts["header"]).encode()
    return encode_arrays(np.frombuffer(encoded, dtype=np.uint8), parts["numbers"], parts["lengths"], parts["items"])


def change_columns(change):
    """A change of the header that changes its list of columns."""

    def changed(header):
        change(header["columns"])
        return header

    return changed


@pytest.mark.parametrize(
    "changes",
    [
        {"header": lambda _header: b"no JSON"},
        {"header": lambda _header: b"[" * 100_000},
        {"header": lambda header: [header]},
        {"header": lambda header: header["columns"]},
        {"header": lambda _header: {"columns": {}, "left_out": {}}},
        {"header": lambda header: header | {"left_out": {"a": 1}}},
        {"header": lambda header: header | {"left_out": {str(number): "" for number in range(65)}}},
        {"header": change_columns(lambda columns: columns.append(columns[0]))},
        {"header": change_columns(lambda columns: columns.append({"name": "x"}))},
        {"header": change_columns(lambda columns: columns.pop())},
        {"header": change_columns(lambda columns: columns[0].update(name=""))},
        {"header": change_columns(lambda columns: columns[0].update(name="x" * 101))},
        {"header": change_columns(lambda columns: columns[0].update(name=5))},
        {"header": change_columns(lambda columns: columns[0].update(values=["War", "Drama"]))},
        {"header": change_columns(lambda columns: columns[0].update(values=["Drama", "Drama"]))},
        {"header": change_columns(lambda columns: columns[0].update(values=["Drama", 5.0]))},
        {"header": change_columns(lambda columns: columns[0].update(values=[1, 2]))},
        {"header": change_columns(lambda columns: columns[0].update(values=[1.0, float("nan")]))},
        {"header": change_columns(lambda columns: columns[0].update(values=[]))},
        {"header": change_columns(lambda columns: columns[0].update(values=["a", "b" * 257]))},
        {"header": change_columns(lambda columns: columns[0].update(values=None))},
        {"numbers": lambda numbers: numbers[:, :-1]},
        {"numbers": lambda numbers: numbers[:0]},
        {"numbers": lambda numbers: np.where(np.isnan(numbers), np.inf, numbers)},
        {"numbers": lambda numbers: numbers.astype(np.float32)},
        {"lengths": lambda lengths: lengths[:-1]},
        {"lengths": lambda lengths: lengths + 1},
        {"lengths": lambda lengths: np.concatenate([[0, lengths[0] + lengths[1]], lengths[2:]])},
        {"lengths": lambda lengths: np.concatenate([[-1, lengths[0] + lengths[1] + 1], lengths[2:]])},
        {"items": lambda items: items[:-1]},
        {"items": lambda items: items - 1},
        {"items": lambda items: items + 4},
        {"items": lambda items: np.concatenate([items[1::-1], items[2:]])},
        {"items": lambda items: items.astype(np.int64)},
    ],
    ids="-".join,
)
def test_content_that_does_not_fit_is_refused(gathered, changes):
    """Whatever the manifest's digest says, columns, values and items must fit each other and the catalogue."""
    Attributes.from_bytes(rewritten(gathered), 4)
    with pytest.raises(ValueError, match=r"^(a|not|numbers|lengths|values|items|reasons|columns)\b"):
        Attributes.from_bytes(rewritten(gathered, **changes), 4)


def test_a_bundle_holds_them_or_not(published, gathered):
    """Bundles of before have none; what does not fit the bundle's items is refused by the file's name."""
    assert read_bundle(published).attributes is None
    folder = published / "20260102T030405-0a1b2c3d"

    def put(content):
        (folder / bundle.ATTRIBUTES).write_bytes(content)
        manifest = json.loads((folder / bundle.MANIFEST).read_bytes())
        manifest["files"][bundle.ATTRIBUTES] = vars(describe_file(content))
        (folder / bundle.MANIFEST).write_text(json.dumps(manifest))

    put(gather_attributes(Vocabulary(["a", "b", "c"]), KNOWN).to_bytes())
    read = read_bundle(published).attributes
    assert read is not None
    assert list(read.columns) == ["genres", "new", "sizes", "title", "year"]
    put(gathered.to_bytes())  # of four items, where the bundle has three
    with pytest.raises(BundleFormat, match=r"attributes\.npy holds numbers"):
        read_bundle(published)
