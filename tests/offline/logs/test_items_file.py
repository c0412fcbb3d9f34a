"""Items files: metadata with the right types, faults with lines."""

import gzip

import pytest

from training.errors import DataError
from training.logs.items import read_items


def test_columns_become_lists_numbers_or_text(tmp_path):
    """Genres split at |, numeric columns become numbers, mixed ones stay text, empty cells are absent."""
    path = tmp_path / "items.csv"
    path.write_text(
        "item,title,year,price,genres,code,tags\n"
        'a,"1984, again",1984,1.5,Drama,007,x|y\nb,1984,,2,A|B,8,\nc,,1990,,,,\n'
    )
    assert read_items(path) == {
        "a": {
            "title": "1984, again",
            "year": 1984,
            "price": 1.5,
            "genres": ["Drama"],
            "code": "007",
            "tags": ["x", "y"],
        },
        "b": {"title": "1984", "price": 2.0, "genres": ["A", "B"], "code": "8"},
        "c": {"year": 1990},
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("i.csv", "id,title\na,b\n", r"i\.csv has no column 'item', only id, title"),
        ("i.csv", "item,title\na,b\na,c\n", r"i\.csv, line 3: an earlier line describes the same item"),
        ("i.tsv", "item\ttitle\n\tb\n", r"i\.tsv, line 2: no item"),
        ("i.csv", "", r"i\.csv is empty"),
        ("i.csv", "item,title\na,b,c\n", r"i\.csv, line 2: 3 fields where the header has 2"),
    ],
)
def test_faults_name_file_and_line(tmp_path, name, content, message):
    """Broken items files are refused with the place of the fault."""
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_items(tmp_path / name)


def test_a_missing_file_is_named(tmp_path):
    """No file, a clear sentence."""
    with pytest.raises(DataError, match="is not a file"):
        read_items(tmp_path / "none.csv")


def test_items_files_may_be_json(tmp_path):
    """Objects by item are metadata; lists, as S3-Rec's files have them, are attributes."""
    plain, packed = tmp_path / "items.json", tmp_path / "attributes.json.gz"
    plain.write_text('{"a": {"price": 1.5, "tags": ["x"], "none": null}, "b": {}}')
    packed.write_bytes(gzip.compress(b'{"1": [17, 4], "2": []}'))
    assert read_items(plain) == {"a": {"price": 1.5, "tags": ["x"]}, "b": {}}
    assert read_items(packed) == {"1": {"attributes": [17, 4]}, "2": {}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read as JSON"),
        ('{"a": {"x": NaN}}', "cannot be read as JSON"),
        ("[]", "is not a JSON object keyed by item"),
        ('{"a": 1}', "item 'a' must be a list"),
        ('{"a": {"x": {"y": 1}}}', "item 'a' must be a list"),
    ],
)
def test_bad_json_items_are_refused(tmp_path, content, words):
    """The fault and its item are named."""
    path = tmp_path / "items.json"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        read_items(path)
