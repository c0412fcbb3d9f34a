"""The archive of a service as training data."""

import gzip
import json

import pytest

from training.errors import DataError
from training.logs import archive
from training.logs.reader import read_log
from training.recipe import DataRecipe


def write_segment(folder, name, *events):
    """Write a segment; an event is (user, event id, item, time) with a type or not."""
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps(
            {
                "event_id": event_id,
                "user_id": user,
                "item_id": item,
                "type": kind[0] if kind else "view",
                "value": None,
                "timestamp": time,
                "recommendation_id": None,
                "properties": {"any": 1},
            }
        )
        for user, event_id, item, time, *kind in events
    ]
    (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


def histories(log):
    """Item ids by user, oldest first."""
    return {user: log.vocabulary.decode(row.tolist()) for user, row in zip(log.user_ids, log.histories, strict=True)}


def test_folder_is_one_log_with_every_event_once(tmp_path):
    """Segments in the order of their ids, not of their names; events by time, ties as accepted, repeats dropped."""
    write_segment(
        tmp_path, "00-1000-0-2000-0", ("a", "e2", "y", 1_700_000_000_002), ("a", "e3", "x", 1_700_000_000_001)
    )
    write_segment(tmp_path, "00-900-0-999-0", ("a", "e1", "z", 1_700_000_000_002), ("b", "e1", "x", 1_700_000_000_003))
    write_segment(
        tmp_path, "00-3000-0-3000-1", ("a", "e1", "z", 1_700_000_000_002), ("c", "e1", "x", 1_700_000_000_004)
    )
    write_segment(tmp_path, "01-1-0-2-0")
    log = read_log(tmp_path, DataRecipe())
    assert histories(log) == {"a": ["x", "z", "y"], "b": ["x"], "c": ["x"]}


def test_recipe_applies_to_it(tmp_path):
    """Types are filtered; names of columns are the service's, whatever the recipe's are for files."""
    write_segment(
        tmp_path,
        "07-1-0-2-0",
        ("a", "e1", "x", 1_700_000_000_001, "view"),
        ("a", "e2", "y", 1_700_000_000_002, "purchase"),
    )
    log = read_log(tmp_path, DataRecipe(event_types=("purchase",), user_column="someone", type_column="kind"))
    assert histories(log) == {"a": ["y"]}


def test_times_count_whatever_the_recipe_says_of_files(tmp_path):
    """A recipe for files without times does not take the order of arrival for the order of time."""
    write_segment(tmp_path, "07-1-0-2-0", ("a", "e1", "x", 1_700_000_000_002), ("a", "e2", "y", 1_700_000_000_001))
    assert histories(read_log(tmp_path, DataRecipe(timestamp_column=""))) == {"a": ["y", "x"]}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (None, b"", "holds no segments"),
        ("00-1-0-2-0", b"no gzip", "is damaged"),
        ("00-1-0-2-0", b"", "is damaged"),
        ("00-1-0-2-0", gzip.compress(b'{"user_id": "a"}\n' * 9)[:-9], "is damaged"),
        ("00-1-0-2-0", gzip.compress(b"no json\n"), "is damaged"),
        ("00-1-0-2-0", gzip.compress(b'{"user_id": "a", "item_id": "x"}\n'), "line 1: an event has user_id"),
        ("my-events", gzip.compress(b"{}\n"), "is not a segment"),
    ],
    # Named by hand: gzip writes the second into its bytes, and processes that share the tests need the same names.
    ids=["no-segment", "no-gzip", "no-byte", "cut-short", "no-json", "no-event-id", "another-name"],
)
def test_faults_name_the_file(tmp_path, name, content, said):
    """Whatever is wrong with a folder or a segment is one sentence with its name."""
    if name:
        (tmp_path / f"{name}.jsonl.gz").write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read_log(tmp_path, DataRecipe())
    assert str(tmp_path) in str(caught.value)


def test_merged_segment_is_read_in_place_of_its_parts(tmp_path):
    """A user who was erased since is not read of the parts that were not deleted yet; another partition's count."""
    one, two, gone = (("a", name, name, 1_700_000_000_000 + at) for at, name in enumerate("xyz"))
    write_segment(tmp_path, "00-1-0-2-0", one, ("erased", "e", "x", 1_700_000_000_000))
    write_segment(tmp_path, "00-3-0-4-0", two, ("erased", "f", "x", 1_700_000_000_001))
    write_segment(tmp_path, "00-1-0-4-0", one, two)
    write_segment(tmp_path, "00-5-0-5-0", gone)
    write_segment(tmp_path, "01-1-0-2-0", ("b", "e", "x", 1_700_000_000_000))
    assert histories(read_log(tmp_path, DataRecipe())) == {"a": ["x", "y", "z"], "b": ["x"]}


def test_segment_that_vanishes_is_looked_for_in_another(tmp_path, monkeypatch):
    """The archiver merges two segments after they were listed: nothing of them is missing, nothing is read twice."""
    events = [("a", name, name, 1_700_000_000_000 + at) for at, name in enumerate("xy")]
    write_segment(tmp_path, "00-1-0-1-0", events[0])
    write_segment(tmp_path, "00-2-0-2-0", events[1])
    read = archive._read
    merged: list[None] = []

    def merge_meanwhile(segment):
        if not merged:
            merged.append(write_segment(tmp_path, "00-1-0-2-0", *events))
            for part in ("00-1-0-1-0", "00-2-0-2-0"):
                (tmp_path / f"{part}.jsonl.gz").unlink()
        return read(segment)

    monkeypatch.setattr(archive, "_read", merge_meanwhile)
    assert histories(read_log(tmp_path, DataRecipe())) == {"a": ["x", "y"]}
