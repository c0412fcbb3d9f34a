"""The format of the event archive: names of segments, which of them count, and their bytes."""

import gzip
from pathlib import Path

import pytest

from model.contract.event_archive import (
    group_merged,
    name_segment,
    pack_records,
    parse_segment,
    read_lines,
)


def test_a_name_tells_partition_and_ids():
    """A segment's path is parsed to what it was named after; other names are no segments."""
    segment = name_segment(Path("archive"), 7, (1763719498123, 0), (1763719498124, 12))
    assert str(segment.path) == "archive/07-1763719498123-0-1763719498124-12.jsonl.gz"
    assert parse_segment(segment.path) == segment
    for name in ("7-1-0-2-0.jsonl.gz", "07-1-0-2.jsonl.gz", ".07-1-0-2-0.jsonl.gz.x.partial", "my-events.jsonl.gz"):
        assert parse_segment(Path(name)) is None


def test_a_segment_within_another_belongs_to_it():
    """Segments come by partition and ids; only those that lie within another one of their partition are grouped."""
    folder = Path("archive")
    late, whole, first, second, other = (
        name_segment(folder, *ids)
        for ids in (
            (0, (10, 0), (11, 0)),
            (0, (1, 0), (9, 5)),
            (0, (1, 0), (4, 0)),
            (0, (5, 0), (9, 5)),
            (1, (2, 0), (3, 0)),
        )
    )
    groups = group_merged([other, second, late, first, whole])
    assert list(groups.items()) == [(whole, [first, second]), (late, []), (other, [])]


def test_the_same_records_make_the_same_bytes(tmp_path):
    """A segment's bytes depend on its records alone, and are those that earlier versions wrote."""
    file = tmp_path / "segment"
    file.write_bytes(pack_records([b'{"a":1}', b'{"b":2}']))
    assert read_lines(file) == b'{"a":1}\n{"b":2}\n'
    assert file.read_bytes() == gzip.compress(b'{"a":1}\n{"b":2}\n', 6, mtime=0)


@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", lambda packed: packed[:-9], lambda packed: packed[:12] + b"\xff" * 20, lambda _: b"x"],
)
def test_damage_is_an_os_error(tmp_path, damage):
    """An empty, cut or overwritten file raises OSError, as an unreadable one does."""
    file = tmp_path / "segment"
    file.write_bytes(damage(pack_records([bytes(range(32, 127)) * 3])))
    with pytest.raises(OSError, match=r"."):
        read_lines(file)
