"""Reading logs with the standard library: every form, every fault by its line, and never much memory."""

import gzip
import tracemalloc
from functools import partial

import pytest

from model.contract.event_logs.errors import LogError
from model.contract.event_logs.options import LogOptions
from model.contract.event_logs.stream import Event, open_log

pack = partial(gzip.compress, mtime=0)  # tests are named by what is packed, which must not hold the time
ROWS = [Event(2, "u1", "x", 1_700_000_000_000, "buy", 2.5)]


def _write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _read(path, **options):
    with open_log(path, LogOptions(**options)) as log:
        return list(log), log


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "user,item,timestamp,type,value\nu1,x,1700000000,buy,2.5\n"),
        ("a.csv", '\ufeffuser;item;"timestamp";type;value\r\n"u1";"x";1700000000;buy;2.5\r\n'),
        ("a.csv", "user|item|timestamp|type|value\nu1|x|1700000000|buy|2.5"),
        ("a.tsv", "user\titem\ttimestamp\ttype\tvalue\nu1\tx\t1700000000\tbuy\t2.5\n\n"),
        ("a.dat", "user::item::timestamp::type::value\nu1::x::1700000000::buy::2.5\n"),
        ("a.txt", "user_id,item_id,timestamp,type,value\nu1,x,1700000000,buy,2.5\n"),
        ("a.csv.gz", pack(b"user,item,timestamp,type,value\nu1,x,1700000000,buy,2.5\n")),
        ("a.csv", pack(b"user,item,timestamp,type,value\nu1,x,1700000000,buy,2.5\n")),
        ("a.jsonl", '\n{"user": "u1", "item": "x", "timestamp": 1700000000, "type": "buy", "value": 2.5}\n'),
        ("a.json.gz", pack(b'\n{"user": "u1", "item": "x", "timestamp": 1.7e9, "type": "buy", "value": 2.5}')),
    ],
)
def test_every_form_gives_the_same_event(tmp_path, name, content):
    """Separators, quotes, byte order marks, line ends and packing make no difference."""
    events, log = _read(_write(tmp_path / name, content))
    assert events == ROWS
    assert log.read_bytes == log.total_bytes
    assert "time = timestamp (epoch seconds)" in log.description


def test_files_without_a_header_have_numbered_columns(tmp_path):
    """As MovieLens' ratings.dat: the error says so, and numbers name them."""
    path = _write(tmp_path / "ratings.dat", "1::1193::5::978300760\n1::661::3::978302109\n")
    with pytest.raises(LogError, match="it has no header, so its columns are numbered 1 to 4"):
        _read(path)
    events, log = _read(path, columns={"user": "1", "item": "2", "time": "4", "value": "3"})
    assert [(event.line, event.item_id, event.value) for event in events] == [(1, "1193", 5.0), (2, "661", 3.0)]
    assert log.description.startswith("text separated by double colons, without a header; user = 1, item = 2")


def test_lines_of_user_and_items(tmp_path):
    """The literature's forms have no times."""
    events, _ = _read(_write(tmp_path / "a.txt", "a x\nb y z\n"))
    assert [event[:4] for event in events] == [(1, "a", "x", None), (2, "b", "y", None), (2, "b", "z", None)]


def test_events_without_ids_are_left_out_and_counted(tmp_path):
    """Empty cells, blanks and what tools write; refused or kept on request, but an empty one is never kept."""
    path = _write(tmp_path / "a.csv", "user,item,timestamp\nu,x,1\nNaN,x,1\nu, ,1\nu,null,1\nu,\\N,2\n,x,3\n")
    events, log = _read(path)
    assert [event.line for event in events] == [2]
    assert (log.skipped, log.first_skipped) == (5, 3)
    with pytest.raises(LogError, match=r"a\.csv, line 3: no user; --missing-ids skip leaves such events out"):
        _read(path, missing_ids="refuse")
    with pytest.raises(LogError, match=r"a\.csv, line 4: no item"):
        _read(path, missing_ids="keep")


def test_ids_are_encoded_on_request(tmp_path):
    """Otherwise the option is named."""
    path = _write(tmp_path / "a.csv", "user,item,timestamp\n100%,café au lait,1\n")
    with pytest.raises(LogError, match=r"line 2: the id of the item is not .*; --ids percent encodes other characters"):
        _read(path)
    [event], _ = _read(path, ids="percent")
    assert (event.user_id, event.item_id) == ("100%25", "caf%C3%A9%20au%20lait")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a\.csv is empty"),
        ("a.csv", "\n \n", r"a\.csv is empty"),
        ("a.csv", "user,item,timestamp\nu,x,1,2\n", r"a\.csv, line 2: 4 fields where the header has 3"),
        ("a.csv", 'user,item,timestamp\nu,"x,1\nu,y,2\n', r"a\.csv, line 2: a field with quotes that do not match"),
        ("a.csv", b"user,item,timestamp\nu,\xff,1\n", r"a\.csv, line 2: not UTF-8"),
        ("a.csv", "user,item,timestamp\n".encode("utf-16"), r"a\.csv is not UTF-8 text"),
        ("a.csv", "user,item,timestamp\nu,x,\n", r"a\.csv, line 2: no timestamp"),
        (
            "a.csv",
            "user,item,timestamp\nu,x,1\nu,x,soon\n",
            r"line 3: the time 'soon' cannot be read.*column 'timestamp'",
        ),
        (
            "a.csv",
            "user,item,timestamp,value\nu,x,1,dear\n",
            r"line 2: 'value' is no number; --columns value= reads none",
        ),
        ("a.csv", "user,item,timestamp\nu," + "x" * (1 << 20) + ",1\n", r"line 2: longer than 1 MiB"),
        ("a.csv", f"user,item,timestamp\nu,{'é' * 50},1\n", r"line 2: the id of the item is not"),
        ("a.csv.gz", pack(b"user,item,timestamp\nu,x,1\n" * 9)[:-9], r"a\.csv\.gz cannot be read"),
        ("a.jsonl", '{"user": 1, "item": 2, "timestamp": 3}\n{"user": 1,\n', r"a\.jsonl, line 2: not a JSON object"),
        ("a.jsonl", '{"user": 1, "item": 2, "timestamp": 3}\n[1]\n', r"a\.jsonl, line 2: not a JSON object"),
        (
            "a.jsonl",
            '{"user": 1, "item": [2], "timestamp": 3}\n',
            r"a\.jsonl, line 1: 'item' is neither text nor a number",
        ),
        ("a.json", '[{"user": 1}]', r"a\.json is one JSON list: write one object a line, as `jq"),
        ("a.jsonl", "nothing\n", r"a\.jsonl holds no JSON lines"),
        ("a.txt", "u\n", r"a\.txt, line 1: neither `user item` nor a user with all items"),
        ("a.txt", "u x y\nu z w\n", r"a\.txt, line 2: not `user item`, nor a user's only line"),
        ("a.parquet", b"PAR1", r"Parquet and \.zst are read by nextitem-train only: write CSV or JSON lines"),
        ("a.csv.zst", b"\x28\xb5\x2f\xfd", r"Parquet and \.zst are read by nextitem-train only"),
        ("a.log", "x", r"the file name does not tell the format .* --format csv\|tsv\|jsonl"),
    ],
)
def test_faults_name_file_line_and_remedy(tmp_path, name, content, message):
    """One sentence, which never holds a line of the file."""
    with pytest.raises(LogError, match=message) as caught:
        _read(_write(tmp_path / name, content))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_reading_goes_on_after_bad_rows_where_they_are_taken(tmp_path):
    """Each is handed over, and the others are read."""
    path = _write(tmp_path / "a.csv", "user,item,timestamp\nu,x,1\nu,x,1,2\nu,y z,1\nu,y,soon\nu,y,2\n")
    bad: list[LogError] = []
    with open_log(path, LogOptions(), bad.append) as log:
        assert [event.line for event in log] == [2, 6]
    assert [str(error).partition(": ")[0].rpartition(" ")[2] for error in bad] == ["3", "4", "5"]


@pytest.mark.parametrize(
    "options",
    [
        {"format": "xml"},
        {"ids": "base64"},
        {"missing_ids": "no"},
        {"time_unit": "h"},
        {"time_zone": "X"},
        {"columns": {"who": "x"}},
    ],
)
def test_unknown_options_are_refused(options):
    """Whoever makes them."""
    with pytest.raises(LogError):
        LogOptions(**options)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Sixty thousand events more take no more memory once the unit of times is told."""
    peaks = []
    for count in (20_000, 80_000):
        path = _write(tmp_path / "a.csv", "user,item,timestamp\n" + "".join(f"u{i},x{i},{i}\n" for i in range(count)))
        tracemalloc.start()
        with open_log(path, LogOptions()) as log:
            assert sum(1 for _ in log) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2
